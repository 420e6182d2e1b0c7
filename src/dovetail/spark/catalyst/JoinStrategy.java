package dovetail.catalyst;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.rdd.RDD;
import org.apache.spark.SparkException;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin$;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WindowGroupLimit;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.internal.SQLConf$;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** Plans joins that Spark would run as nested loops. Compiled by the Janino of the running Spark. */
public class JoinStrategy extends SparkStrategy {
  private Function planner;
  private double manyPairs;
  private WeakReference refused = new WeakReference(null); // Spark plans it again, without what is above it

  /** The planner takes a session and a join, and returns what runs it: a function of them to an RDD of rows; or null. */
  public void setPlanner(Function planner, double manyPairs) {
    this.planner = planner;
    this.manyPairs = manyPairs;
    try {
      RangeHint.understand();
    } catch (RuntimeException error) { // another way to log
      LoggerFactory.getLogger("dovetail").debug("a RANGE_JOIN hint is a warning", error);
    } catch (LinkageError error) {
      LoggerFactory.getLogger("dovetail").debug("a RANGE_JOIN hint is a warning", error);
    }
  }

  /** Be a strategy of the sessions that are made from now on. */
  public void enableNewSessions(SparkSession session) {
    session.extensions().injectPlannerStrategy(new Always(this));
  }

  /** Whatever goes wrong here, Spark goes on without; unless warnings are errors. */
  public Seq apply(LogicalPlan plan) {
    Seq none = (Seq) (Object) Nil$.MODULE$;
    Object run = null;
    try {
      if (plan instanceof WindowGroupLimit && enabled()) {
        return firstRows((WindowGroupLimit) plan, none);
      }
      Counted counted = Counted.find(plan);
      boolean projected = plan instanceof Project && ((Project) plan).child() instanceof Join;
      LogicalPlan join = counted != null ? counted.join : projected ? ((Project) plan).child() : plan;
      if (!(join instanceof Join) || join == refused.get() || !enabled() || !isTaken((Join) join)
          || (counted != null && BestPartners.of(counted.join) != null)) {
        return none;
      }
      SparkSession session = (SparkSession) SparkSession.active();
      run = planner.apply(new Object[] {session, join});
      if (run instanceof Function) {
        Join whole = whole((Join) join);
        SparkPlan rows = counted != null ? counted.summed(session, whole, (Function) run)
            : new DovetailJoin(session, whole, projected ? read(plan, whole) : whole.output(), false, (Function) run);
        return (Seq) none.prepended(projected ? new ProjectExec(((Project) plan).projectList(), rows) : rows);
      }
      refused = new WeakReference(join);
    } catch (RuntimeException error) {
      LoggerFactory.getLogger("dovetail").warn("Spark runs a join that Dovetail could not look at", error);
    } catch (LinkageError error) {
      LoggerFactory.getLogger("dovetail").warn("Spark runs a join: this version is not known to Dovetail", error);
    }
    if (run != null) {
      throw new RuntimeException(new SparkException(String.valueOf(run)));
    }
    return none;
  }

  /** The plan of the first rows of groups, where the join that they come from makes no other ones. */
  private Seq firstRows(WindowGroupLimit limit, Seq none) {
    SparkSession session = (SparkSession) SparkSession.active();
    Join join = FirstRows.join(limit);
    if (join == null || BestPartners.of(join) != null || !isTaken(join)) { // it is marked already
      return none;
    }
    LogicalPlan marked = FirstRows.marked(session, limit, join);
    return marked == null ? none : (Seq) none.prepended(session.sessionState().planner().plan(marked).next());
  }

  /** The columns of a join that the projection above it reads. */
  private static Seq read(LogicalPlan projection, Join join) {
    Seq columns = (Seq) (Object) Nil$.MODULE$;
    for (int i = 0; i < join.output().size(); i++) {
      Attribute column = (Attribute) join.output().apply(i);
      if (projection.references().contains(column)) {
        columns = (Seq) columns.appended(column);
      }
    }
    return columns;
  }

  private boolean isTaken(Join join) {
    return BestPartners.of(join) != null || (refuse(join) == null && !isSmall(join));
  }

  private static boolean enabled() {
    return !SQLConf$.MODULE$.get().getConfString("spark.dovetail.enabled", "true").trim().equalsIgnoreCase("false");
  }

  private boolean isSmall(Join join) {
    String least = SQLConf$.MODULE$.get().getConfString("spark.dovetail.leastPairs", null);
    return pairs(join) < (least == null ? manyPairs : Double.parseDouble(least));
  }

  /** Why a join is left to Spark, even a large one; null if it need not be. */
  public static String refuse(Join join) {
    if (leftToSpark(join.hint().leftHint())) {
      return "Dovetail has left it to Spark";
    }
    if (join.isStreaming()) {
      return "it is a join of streams";
    }
    if (join.condition().isEmpty()) {
      return "it has no condition";
    }
    if (how(join) == null) {
      return "the join type is " + join.joinType();
    }
    if (hinted(join.hint().leftHint()) || hinted(join.hint().rightHint())) {
      return "a hint says how to run it";
    }
    if (Double.isInfinite(KeyValues.of(join))) {
      return "it has equal keys, and nothing says that a range is left to compare for few of them";
    }
    if (ExtractSingleColumnNullAwareAntiJoin$.MODULE$.unapply(join).isDefined()) {
      return "it is a NOT IN, which Spark joins by hash";
    }
    Expression condition = (Expression) join.condition().get();
    if (!condition.deterministic()) {
      return "its condition is not deterministic";
    }
    if (condition.find(new Foreign()).isDefined()) {
      return "its condition calls a function of its own, or has a subquery";
    }
    if (condition.find(new Risky(SQLConf$.MODULE$.get().ansiEnabled())).isDefined()) {
      return "what its condition computes may fail, or wrap around, and only Spark knows when";
    }
    return null;
  }

  /** The join type in the words of Dovetail; null if it has none for it. */
  public static String how(Join join) {
    String type = join.joinType().toString();
    if (type.equals("Inner") || type.equals("Cross")) return "inner";
    if (type.equals("LeftOuter")) return "left";
    if (type.equals("RightOuter")) return "right";
    if (type.equals("FullOuter")) return "full";
    if (type.equals("LeftSemi")) return "left_semi";
    if (type.equals("LeftAnti")) return "left_anti";
    return null;
  }

  /** About how many pairs of rows Spark would compare. */
  public static double pairs(Join join) {
    return InputRows.of(join.left()) * InputRows.of(join.right()) / KeyValues.of(join);
  }

  /** The joins of a query, and of its subqueries. */
  public static Seq joins(LogicalPlan plan) {
    return plan.collectWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof Join;
      }
      public Object applyOrElse(Object node, Function1 otherwise) {
        return node instanceof Join ? node : otherwise.apply(node);
      }
    });
  }

  public static double rows(LogicalPlan plan) {
    return InputRows.of(plan);
  }

  /** The condition as SQL; null if Spark would read it as another one. */
  public static String text(SparkSession session, Join join) {
    return ConditionText.isTheSame(session, join) ? ConditionText.of(join) : null;
  }

  /** What `top=`, `ties=` and `order_by=` are for a join with only some partners of each left row; null if it has all. */
  public static List best(Join join) {
    BestPartners best = BestPartners.of(join);
    return best == null ? null : Arrays.asList(new Object[] {Integer.valueOf(best.top), best.ties, best.order});
  }

  /** The places of columns in the output of a join. */
  public static String places(Join join, Seq columns) {
    StringBuilder places = new StringBuilder();
    for (int i = 0; i < columns.size(); i++) {
      for (int j = 0; j < join.output().size(); j++) {
        Attribute column = (Attribute) join.output().apply(j);
        if (column.exprId().equals(((Attribute) columns.apply(i)).exprId())) {
          places.append(j).append(' ');
        }
      }
    }
    return places.toString();
  }

  /** The types of columns, but for what in them can be null. */
  public static String types(Seq columns) {
    List types = new ArrayList();
    for (int i = 0; i < columns.size(); i++) {
      types.add(((Attribute) columns.apply(i)).dataType().catalogString());
    }
    return types.toString();
  }

  /** The join as it was before Spark began to run its inputs: what an adaptive plan has in hand is for Spark alone. */
  public static Join whole(Join join) {
    return (Join) (Object) join.transformDown(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof LogicalQueryStage;
      }
      public Object applyOrElse(Object node, Function1 otherwise) {
        return node instanceof LogicalQueryStage ? planned((LogicalQueryStage) node) : otherwise.apply(node);
      }
    });
  }

  private static LogicalPlan planned(LogicalQueryStage stage) {
    LogicalPlan plan = stage.logicalPlan();
    return plan instanceof LogicalQueryStage ? planned((LogicalQueryStage) plan) : plan;
  }

  private static boolean leftToSpark(Option hint) {
    return hinted(hint) && ((HintInfo) hint.get()).strategy().get() instanceof LeftToSpark;
  }

  private static boolean hinted(Option hint) {
    return hint.isDefined() && ((HintInfo) hint.get()).strategy().isDefined();
  }
}

/** The same for every session. */
class Always extends AbstractFunction1 {
  private final JoinStrategy strategy;

  Always(JoinStrategy strategy) {
    this.strategy = strategy;
  }

  public Object apply(Object session) {
    return strategy;
  }
}
