// A client that waits for what a maker prepares, and then has a pool's only thread do; a bystander has other
// things done there. Says `ready`.
//
//     Executor.java PREPARATION JOB OTHER_JOB      each in milliseconds

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;

public class Executor {
    static final Semaphore WANTED = new Semaphore(0), DONE = new Semaphore(0);

    interface Step {
        void run() throws Exception;
    }

    static void start(String name, Step step) {
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    step.run();
                }
            } catch (Exception ended) {
                ended.printStackTrace();
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        int preparation = Integer.parseInt(arguments[0]);
        int job = Integer.parseInt(arguments[1]);
        int otherJob = Integer.parseInt(arguments[2]);
        ExecutorService pool = Executors.newFixedThreadPool(1, task -> {
            Thread thread = new Thread(task, "pool");
            thread.setDaemon(true);
            return thread;
        });
        start("client", () -> {
            WANTED.release();
            DONE.acquire();
            Thread.sleep(1);
        });
        start("maker", () -> {
            WANTED.acquire();
            Thread.sleep(preparation);
            pool.submit(() -> {
                Thread.sleep(job);
                DONE.release();
                return null;
            });
        });
        start("bystander", () -> {
            pool.submit(() -> {
                Thread.sleep(otherJob);
                return null;
            }).get();
            // At any time of the maker's: else both can be in step, and one always comes while the pool is awake.
            Thread.sleep(ThreadLocalRandom.current().nextInt(5, 40));
        });
        System.out.println("ready");
        System.in.read();
    }
}
