package lines;

import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/**
 * Many command lines of Kafka's tools, one after the other in one JVM. The argument names a file; each of its lines is, between tabs, a base
 * path, the tool's class and its arguments. BASE.in is its standard input if it is there; BASE.out, BASE.err and BASE.code are what came of it.
 */
public final class Lines {
    private static final long LIMIT_MS = 30_000;
    private static final Queue<Runnable> hooks = new ConcurrentLinkedQueue<>();

    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        AtomicReference<Integer> exit = new AtomicReference<>();
        // Some tools catch whatever is thrown, so the first code is the one that counts.
        Exit.setExitProcedure((code, message) -> {
            exit.compareAndSet(null, code);
            throw new Ended();
        });
        Exit.setHaltProcedure((code, message) -> {
            exit.compareAndSet(null, code);
            throw new Ended();
        });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split("\t", -1);
            exit.set(null);
            run(words, exit);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] words, AtomicReference<Integer> exit) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        Path input = Path.of(words[0] + ".in");
        System.setIn(Files.exists(input) ? Files.newInputStream(input) : InputStream.nullInputStream());
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        Thread thread = new Thread(() -> call(words, exit));
        thread.setDaemon(true);
        thread.start();
        thread.join(LIMIT_MS);
        Integer code = thread.isAlive() ? Integer.valueOf(-1) : exit.get();
        end();
        System.out.flush();
        System.err.flush();
        Files.write(Path.of(words[0] + ".out"), out.toByteArray());
        Files.write(Path.of(words[0] + ".err"), err.toByteArray());
        Files.writeString(Path.of(words[0] + ".code"), String.valueOf(code == null ? 0 : code));
    }

    private static void call(String[] words, AtomicReference<Integer> exit) {
        try {
            Class<?> tool = Class.forName(words[1]);
            forgetCount(tool);
            tool.getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(words, 2, words.length));
        } catch (ReflectiveOperationException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                exit.compareAndSet(null, 1);
                failure.printStackTrace();
            }
        }
    }

    /** What the end of a tool's process would do: the console producer sends what it has and closes in such a hook. */
    private static void end() throws InterruptedException {
        for (Runnable hook; (hook = hooks.poll()) != null; ) {
            Thread thread = new Thread(hook);
            thread.setDaemon(true);
            thread.start();
            thread.join(LIMIT_MS);
        }
    }

    /** The console consumer counts in a static field, for which one process was one run. */
    private static void forgetCount(Class<?> tool) throws ReflectiveOperationException {
        for (var field : tool.getDeclaredFields()) {
            if (field.getName().equals("messageCount")) {
                field.setAccessible(true);
                field.setInt(null, 0);
            }
        }
    }
}
