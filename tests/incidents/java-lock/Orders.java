import java.io.FileWriter;
import java.io.PrintWriter;

/** Threads that book orders want a ledger that another thread locks while it exports it. */
public class Orders {
    static final Object LEDGER = new Object();
    static long booked;

    static void bookOrder() {
        synchronized (LEDGER) {
            booked++;
        }
    }

    /** Returns for how many seconds it held the lock. */
    static double exportLedger() throws InterruptedException {
        synchronized (LEDGER) {
            long begin = System.nanoTime();
            Thread.sleep(300);
            return (System.nanoTime() - begin) / 1e9;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintWriter log = new PrintWriter(new FileWriter(arguments[0]), true);
        for (int number = 0; number < 4; number++) {
            new Thread(() -> {
                while (true) {
                    long begin = System.nanoTime();
                    bookOrder();
                    double seconds = (System.nanoTime() - begin) / 1e9;
                    synchronized (log) {
                        log.println("bookOrder " + seconds);
                    }
                    try {
                        Thread.sleep(10);
                    } catch (InterruptedException e) {
                        return;
                    }
                }
            }, "order-" + number).start();
        }
        PrintWriter exports = new PrintWriter(new FileWriter(arguments[1]), true);
        Thread exporter = new Thread(() -> {
            try {
                while (true) {
                    exports.println("exportLedger " + exportLedger());
                    Thread.sleep(20);
                }
            } catch (InterruptedException e) {
                return;
            }
        }, "ledger-export");
        exporter.start();
        System.out.println("ready");
        exporter.join();
    }
}
