// A waiter that waits alone for what one of two threads brings, and is notified by both. Says `ready`.
//
//     Notified.java monitor|condition FAST SLOW wants-slow|wants-both
//
// FAST and SLOW are how many milliseconds the two sleep each time.

import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

public class Notified {
    static final Object MONITOR = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static final Condition CONDITION = LOCK.newCondition();
    static boolean hasCondition, wantsBoth;
    static long fast, slow, taken;

    interface Step {
        void run() throws InterruptedException;
    }

    static void start(String name, Step step) {
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    step.run();
                }
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    static boolean hasNothing() {
        return taken == (wantsBoth ? fast + slow : slow);
    }

    static void take() throws InterruptedException {
        if (hasCondition) {
            LOCK.lock();
            try {
                while (hasNothing()) {
                    CONDITION.await();
                }
                taken++;
            } finally {
                LOCK.unlock();
            }
        } else {
            synchronized (MONITOR) {
                while (hasNothing()) {
                    MONITOR.wait();
                }
                taken++;
            }
        }
        long end = System.nanoTime() + 2_000_000;
        while (System.nanoTime() < end) {
        }
    }

    static void bring(boolean isSlow) {
        if (hasCondition) {
            LOCK.lock();
            count(isSlow);
            CONDITION.signalAll();
            LOCK.unlock();
        } else {
            synchronized (MONITOR) {
                count(isSlow);
                MONITOR.notifyAll();
            }
        }
    }

    static void count(boolean isSlow) {
        if (isSlow) {
            slow++;
        } else {
            fast++;
        }
    }

    static void startBringer(String name, String pause, boolean isSlow) {
        int milliseconds = Integer.parseInt(pause);
        start(name, () -> {
            Thread.sleep(milliseconds);
            bring(isSlow);
        });
    }

    public static void main(String[] arguments) throws Exception {
        hasCondition = arguments[0].equals("condition");
        wantsBoth = arguments[3].equals("wants-both");
        start("waiter", Notified::take);
        startBringer("fast", arguments[1], false);
        startBringer("slow", arguments[2], true);
        System.out.println("ready");
        System.in.read();
    }
}
