import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** Threads that want locks of each other, or a lock that one of two has and sleeps with. */
public class Locks {
    static final Lock VAULT = new ReentrantLock();
    static final Lock LEDGER = new ReentrantReadWriteLock().writeLock();
    static final CountDownLatch BOTH = new CountDownLatch(2);

    static void move(Lock first, Lock second) {
        first.lock();
        BOTH.countDown();
        await();
        second.lock();
        throw new IllegalStateException("it has both");
    }

    static void await() {
        try {
            BOTH.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void export() {
        VAULT.lock();
        BOTH.countDown();
        sleep(3_600_000);
    }

    static void rest() {
        VAULT.lock();
        BOTH.countDown();
        VAULT.unlock();
        sleep(3_600_000);
    }

    static void book() {
        VAULT.lock();
        throw new IllegalStateException("it has the lock");
    }

    static Thread start(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) {
        String what = arguments[0];
        if (what.equals("deadlock")) {
            start("left", () -> move(VAULT, LEDGER));
            start("right", () -> move(LEDGER, VAULT));
        } else {
            String other = what.equals("left") ? "right" : "left";
            start(other, Locks::rest);
            sleep(100);
            start(what, Locks::export);
            await();
            start("waiter", Locks::book);
        }
        sleep(300);
        System.out.println("ready");
        sleep(3_600_000);
    }
}
