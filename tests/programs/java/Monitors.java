import java.util.concurrent.CountDownLatch;

/** Threads that want monitors of each other, or a monitor that one of two has and sleeps with. */
public class Monitors {
    static final Object VAULT = new Object();
    static final Object LEDGER = new Object();
    static final CountDownLatch BOTH = new CountDownLatch(2);

    static void move(Object first, Object second) {
        synchronized (first) {
            BOTH.countDown();
            await();
            synchronized (second) {
                throw new IllegalStateException("it has both");
            }
        }
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
        synchronized (VAULT) {
            BOTH.countDown();
            sleep(3_600_000);
        }
    }

    static void rest() {
        synchronized (VAULT) {
            BOTH.countDown();
        }
        sleep(3_600_000);
    }

    static void book() {
        synchronized (VAULT) {
            throw new IllegalStateException("it has the monitor");
        }
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
            start(other, Monitors::rest);
            sleep(100);
            start(what, Monitors::export);
            await();
            start("waiter", Monitors::book);
        }
        sleep(300);
        System.out.println("ready");
        sleep(3_600_000);
    }
}
