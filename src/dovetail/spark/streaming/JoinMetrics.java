package dovetail.streaming;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.MetricsSystem;
import org.apache.spark.metrics.source.Source;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import scala.collection.immutable.Seq;

/**
 * Figures of joins of streams as sources of Spark's metrics, from which its sinks read: one source for each query and
 * join, which goes when the query ends. Figures that are sums grow over the micro-batches of a run.
 */
public class JoinMetrics extends StreamingQueryListener {
  private static final String OURS = "results";

  private final Map joins = new HashMap(); // by run and name
  private final MetricsSystem system = running();
  private Set sums = new HashSet();

  /**
   * The metrics of the running Spark. Reflection, which the compiler and py4j rely on, cannot list the methods of
   * SparkEnv: some of them have types that Spark's distribution lacks. Handles look up one at a time.
   */
  private static MetricsSystem running() {
    try {
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      Object env =
          lookup
              .findStatic(SparkEnv.class, "get", MethodType.methodType(SparkEnv.class))
              .invokeWithArguments(new ArrayList());
      return (MetricsSystem)
          lookup
              .findVirtual(SparkEnv.class, "metricsSystem", MethodType.methodType(MetricsSystem.class))
              .invokeWithArguments(Arrays.asList(new Object[] {env}));
    } catch (Throwable error) {
      throw new IllegalStateException(error);
    }
  }

  /** Which figures are added up. */
  public void setSums(List names) {
    sums = new HashSet(names);
  }

  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {}

  public synchronized void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {
    StreamingQueryProgress progress = event.progress();
    Iterator observed = progress.observedMetrics().entrySet().iterator();
    while (observed.hasNext()) {
      Map.Entry entry = (Map.Entry) observed.next();
      Row row = (Row) entry.getValue();
      if (row.schema() != null && Arrays.asList(row.schema().fieldNames()).contains(OURS)) {
        join(progress, (String) entry.getKey()).add(progress, row);
      }
    }
  }

  public synchronized void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {
    String run = event.runId().toString();
    Iterator entries = joins.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      if (((String) entry.getKey()).startsWith(run)) {
        system.removeSource((Source) entry.getValue());
        entries.remove();
      }
    }
  }

  /** What sinks see of the joins that run: values by the name of the source and of the figure. */
  public synchronized Map values() {
    Map found = new TreeMap();
    Iterator ours = joins.values().iterator();
    while (ours.hasNext()) {
      String name = ((Source) ours.next()).sourceName();
      Seq sources = system.getSourcesByName(name);
      for (int i = 0; i < sources.size(); i++) {
        Map values = new TreeMap();
        Iterator gauges = ((Source) sources.apply(i)).metricRegistry().getGauges().entrySet().iterator();
        while (gauges.hasNext()) {
          Map.Entry entry = (Map.Entry) gauges.next();
          values.put(entry.getKey(), ((Gauge) entry.getValue()).getValue());
        }
        found.put(name, values);
      }
    }
    return found;
  }

  private JoinSource join(StreamingQueryProgress progress, String name) {
    String key = progress.runId().toString() + name;
    JoinSource found = (JoinSource) joins.get(key);
    if (found == null) {
      String query = progress.name() == null ? progress.id().toString() : progress.name();
      found = new JoinSource("dovetail." + query + (name.equals("dovetail") ? "" : "." + name), sums);
      joins.put(key, found);
      system.registerSource(found);
    }
    return found;
  }

  /** One join of one run. Spark keeps its registry, and is told of figures that come later. */
  private static class JoinSource implements Source {
    final ConcurrentHashMap values = new ConcurrentHashMap();
    private final MetricRegistry registry = new MetricRegistry();
    private final String name;
    private final Set sums;

    JoinSource(String name, Set sums) {
      this.name = name;
      this.sums = sums;
    }

    public String sourceName() {
      return name;
    }

    public MetricRegistry metricRegistry() {
      return registry;
    }

    void add(StreamingQueryProgress progress, Row row) {
      put("micro_batches", 1, true);
      put("rows", progress.numInputRows(), true);
      Number took = (Number) progress.durationMs().get("triggerExecution");
      put("micro_batch_ms", took == null ? 0 : took.doubleValue(), true);
      String[] names = row.schema().fieldNames();
      for (int i = 0; i < names.length; i++) {
        if (!row.isNullAt(i) && row.get(i) instanceof Number) {
          put(names[i], ((Number) row.get(i)).doubleValue(), sums.contains(names[i]));
        } else if (!row.isNullAt(i) && row.get(i) instanceof Boolean) {
          put(names[i], ((Boolean) row.get(i)).booleanValue() ? 1 : 0, false);
        }
      }
    }

    private void put(String figure, double value, boolean isSum) {
      Double before = (Double) values.get(figure);
      values.put(figure, Double.valueOf(isSum && before != null ? before.doubleValue() + value : value));
      if (before == null) {
        registry.register(figure, new Value(values, figure));
      }
    }
  }

  private static class Value implements Gauge {
    private final Map values;
    private final String figure;

    Value(Map values, String figure) {
      this.values = values;
      this.figure = figure;
    }

    public Object getValue() {
      return values.get(figure);
    }
  }
}
