import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/**
 * A Kafka client for tests, on Java's own kafka-clients: reads requests from stdin, one JSON object a line, and answers
 * each with one line. ../../field/driver.go says what is asked and answered; the drivers of other clients take and
 * print the same.
 */
final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Driver() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            if (request.get("do").asText().equals("member")) {
                Member.run(request, in);
                return;
            }
            print(answer(request));
        }
    }

    static synchronized void print(JsonNode node) {
        OUT.println(node);
    }

    private static JsonNode answer(JsonNode request) {
        try {
            return act(request);
        } catch (Exception e) {
            return failure(e);
        }
    }

    static ObjectNode failure(Throwable e) {
        while ((e instanceof ExecutionException || e instanceof CompletionException) && e.getCause() != null) {
            e = e.getCause();
        }
        // The one error that has a code on the wire and another class in the consumer.
        Errors named = e instanceof OffsetOutOfRangeException ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(e);
        StringBuilder text = new StringBuilder(e.toString());
        for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
            text.append(": ").append(cause);
        }
        ObjectNode out = JSON.createObjectNode();
        out.putObject("error").put("code", (int) named.code()).put("text", text.toString());
        return out;
    }

    private static JsonNode act(JsonNode request) throws Exception {
        String what = request.get("do").asText();
        switch (what) {
            case "version":
                return JSON.createObjectNode().put("version", AppInfoParser.getVersion());
            case "produce":
                return Records.produce(request);
            case "consume":
            case "seek":
            case "beyond":
                return Records.consume(request);
            default:
                return Admins.act(what, request);
        }
    }

    /** What every client of a request is configured with. */
    static Properties config(JsonNode request) {
        Properties p = new Properties();
        p.put("bootstrap.servers", request.get("bootstrap").asText());
        p.put("client.id", "java-driver");
        return p;
    }

    static String text(JsonNode request, String field) {
        JsonNode n = request.get(field);
        return n == null || n.isNull() ? "" : n.asText();
    }
}
