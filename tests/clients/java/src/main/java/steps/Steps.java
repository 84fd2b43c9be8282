package steps;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Steps on a broker, one after the other in one JVM. Each prints one line, "name: what was seen"; what that must be stands in
 * tests/clients/test_java.py, or for "share" in tests/clients/test_java_share.py. A step that throws prints "name: failed: why", and the others go on.
 */
public final class Steps {
    interface Step {
        Object run() throws Exception;
    }

    private final Map<String, Step> steps = new LinkedHashMap<>();

    void add(String name, Step step) {
        steps.put(name, step);
    }

    public static void main(String[] arguments) {
        Steps all = new Steps();
        Clients clients = new Clients(arguments[0]);
        if (arguments.length > 1 && arguments[1].equals("share")) {
            new ShareGroups(clients).addTo(all);
            new ShareAdministration(clients).addTo(all);
        } else {
            new Records(clients).addTo(all);
            new Groups(clients).addTo(all);
            new Administration(clients).addTo(all);
            new Transactions(clients).addTo(all);
            new Consoles(clients).addTo(all);
        }
        boolean isGood = true;
        for (Map.Entry<String, Step> step : all.steps.entrySet()) {
            Object seen;
            try {
                seen = step.getValue().run();
            } catch (Exception | AssertionError error) {
                error.printStackTrace();
                seen = "failed: " + error;
                isGood = false;
            }
            System.out.println(step.getKey() + ": " + seen);
        }
        System.exit(isGood ? 0 : 1);
    }
}
