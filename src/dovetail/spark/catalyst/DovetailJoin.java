package dovetail.catalyst;

import java.util.function.Function;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.unsafe.Platform;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** A join that Dovetail runs. Nothing is read before it is executed. */
public class DovetailJoin extends PlanLeaf {
  private final SparkSession session;
  private final Join join;
  private final Function run;
  private final boolean counted; // the rows are numbers that add up to the number of the join's rows
  private final SparkPlan watched; // executors have the class of a filter, which counts its rows
  private final SQLMetric planned;
  private RDD rows;

  /** The output is a part of the join's, or a number of rows. */
  public DovetailJoin(SparkSession session, Join join, Seq output, boolean counted, Function run) {
    super(output);
    this.session = session;
    this.join = join;
    this.counted = counted;
    this.run = run;
    watched = new FilterExec(Literal$.MODULE$.apply(Boolean.TRUE), new JoinedRows(this));
    planned = SQLMetrics.createTimingMetric(session.sparkContext(), "time to sample and plan", -1L);
  }

  public SparkPlan makeCopy(Object[] fields) {
    return new DovetailJoin(session, join, output(), counted, run);
  }

  public synchronized RDD doExecute() {
    if (rows == null) {
      rows = watched.execute();
    }
    return rows;
  }

  /** Dovetail's rows; or else Spark's, if it has said why not. */
  RDD joined() {
    long start = System.currentTimeMillis();
    Object found = null;
    try {
      found = run.apply(new Object[] {session, join, Boolean.valueOf(counted), output()});
    } catch (RuntimeException error) { // Python has gone
      LoggerFactory.getLogger("dovetail").warn("Spark runs a join that Dovetail was to run", error);
    }
    if (found instanceof Throwable) {
      Platform.throwException((Throwable) found);
    }
    if (found instanceof String) {
      throw new RuntimeException(new SparkException((String) found));
    }
    SparkContext context = session.sparkContext();
    planned.set(System.currentTimeMillis() - start);
    String execution = context.getLocalProperty("spark.sql.execution.id");
    SQLMetrics.postDriverMetricUpdates(context, execution, (Seq) Nil$.MODULE$.prepended(planned));
    return found != null ? (RDD) found : joinedBySpark().queryExecution().toRdd();
  }

  private Dataset joinedBySpark() {
    LogicalPlan rows = new Project(counted ? (Seq) (Object) Nil$.MODULE$ : output(), leaveToSpark(join));
    return counted ? Dataset.ofRows(session, rows).selectExpr(new String[] {"count(1)"}) : Dataset.ofRows(session, rows);
  }

  /** Let Spark run this join. The mark is a hint: rules that write a join anew take its hints along, and not its tags. */
  public static Join leaveToSpark(Join join) {
    Option mark = Option.apply(new HintInfo(Option.apply(new LeftToSpark())));
    JoinHint hint = new JoinHint(mark, join.hint().rightHint());
    return join.copy(join.left(), join.right(), join.joinType(), join.condition(), hint);
  }

  /** What the SQL tab shows beside it. */
  public Map metrics() {
    Map none = (Map) Map$.MODULE$.empty();
    return (Map) none.updated("numOutputRows", watched.longMetric("numOutputRows")).updated("planTime", planned);
  }

  /** What explain shows below this. */
  public Seq innerChildren() {
    return (Seq) Nil$.MODULE$.prepended(join);
  }

  public String nodeName() {
    return "DovetailJoin";
  }

  public String simpleString(int most) {
    String what = counted ? "number of rows, " : "";
    return "DovetailJoin " + what + join.joinType() + ", " + condition() + best() + ", " + output().mkString("[", ", ", "]");
  }

  public String verboseStringWithOperatorId() {
    String name = super.verboseStringWithOperatorId().trim();
    return name + "\nOutput: " + output().mkString("[", ", ", "]") + "\nJoin type: " + join.joinType()
        + "\nJoin condition: " + condition() + best() + "\n";
  }

  private String best() {
    BestPartners best = BestPartners.of(join);
    return best == null ? "" : ", " + best.displayName();
  }

  private String condition() {
    return ((Expression) join.condition().get()).toString();
  }
}

/** Its rows, before they are counted. */
class JoinedRows extends PlanLeaf {
  private final DovetailJoin join;

  JoinedRows(DovetailJoin join) {
    super(join.output()); // of the node
    this.join = join;
  }

  public RDD doExecute() {
    return join.joined();
  }

  public SparkPlan makeCopy(Object[] fields) {
    return new JoinedRows(join);
  }
}
