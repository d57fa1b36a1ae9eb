// Three threads that have a lock for a known time each, one that tries to get it for 5 ms at a time until it has it,
// and one that has nothing to do with it. They write who had it when, by the clock that offwake uses. Says `ready`.
//
//     TimedLock.java LOG sleeps-with-it|computes-with-it MILLISECONDS MILLISECONDS MILLISECONDS

import java.io.FileWriter;
import java.io.PrintWriter;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

public class TimedLock {
    static final ReentrantLock LOCK = new ReentrantLock();
    static PrintWriter log;

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

    static void write(String name, long from, long to) {
        synchronized (log) {
            log.println(name + " " + from + " " + to);
        }
    }

    static void hold(String name, boolean sleeps, int milliseconds) throws InterruptedException {
        LOCK.lock();
        long from = System.nanoTime(), to;
        try {
            if (sleeps) {
                Thread.sleep(milliseconds);
            } else {
                while (System.nanoTime() - from < milliseconds * 1_000_000L) {
                }
            }
            to = System.nanoTime();
        } finally {
            LOCK.unlock();
        }
        write(name, from, to);
        Thread.sleep(20);
    }

    static void want() throws InterruptedException {
        Thread.sleep(2);
        long from = System.nanoTime();
        while (!LOCK.tryLock(5, TimeUnit.MILLISECONDS)) {
        }
        long to = System.nanoTime();
        LOCK.unlock();
        write("wants", from, to);
    }

    public static void main(String[] arguments) throws Exception {
        log = new PrintWriter(new FileWriter(arguments[0]), true);
        boolean sleeps = arguments[1].equals("sleeps-with-it");
        for (int number = 0; number < 3; number++) {
            String name = "holder-" + number;
            int milliseconds = Integer.parseInt(arguments[2 + number]);
            start(name, () -> hold(name, sleeps, milliseconds));
        }
        start("wants", TimedLock::want);
        start("stands-by", () -> LockSupport.parkNanos(5_000_000));
        System.out.println("ready");
        System.in.read();
    }
}
