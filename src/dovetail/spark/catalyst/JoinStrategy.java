package dovetail.catalyst;

import java.util.function.Function;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.ScalaUDF;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin$;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.EmptyRelationExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** Plans joins that Spark would run as nested loops. Compiled by the Janino of the running Spark. */
public class JoinStrategy extends SparkStrategy {
  private static final TreeNodeTag LEFT_TO_SPARK = new TreeNodeTag("dovetail.left_to_spark");
  private Function planner;

  /** The planner takes a join and returns what runs it: a function from the join to an RDD of its rows; or null. */
  public void setPlanner(Function planner) {
    this.planner = planner;
  }

  public Seq apply(LogicalPlan plan) {
    Seq none = (Seq) (Object) Nil$.MODULE$;
    if (!(plan instanceof Join) || refuse((Join) plan) != null) {
      return none;
    }
    Object run = planner.apply(plan);
    return run == null ? none : (Seq) none.prepended(new DovetailJoin((Join) plan, (Function) run));
  }

  /** Why a join is left to Spark, even a large one; null if it need not be. */
  public static String refuse(Join join) {
    if (join.getTagValue(LEFT_TO_SPARK).isDefined()) {
      return "an attempt has failed";
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
    if (ExtractEquiJoinKeys$.MODULE$.unapply(join).isDefined()) {
      return "it has equal keys";
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

  /** The condition in SQL, over columns l.c0, l.c1, … and r.c0, r.c1, … */
  public static String text(Join join) {
    final Seq left = join.left().output();
    final Seq right = join.right().output();
    Expression condition = (Expression) join.condition().get();
    Object renamed = condition.transform(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof AttributeReference;
      }
      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!(node instanceof AttributeReference)) {
          return otherwise.apply(node);
        }
        AttributeReference column = (AttributeReference) node;
        int place = find(left, column);
        String side = place >= 0 ? "l" : "r";
        String name = "c" + (place >= 0 ? place : find(right, column));
        return column.withName(name).withQualifier((Seq) Nil$.MODULE$.prepended(side));
      }
    });
    return ((Expression) renamed).sql();
  }

  /** About how many rows a plan gives, by Spark's statistics. */
  public static double rows(LogicalPlan plan) {
    Statistics known = plan.stats();
    if (known.rowCount().isDefined()) {
      return ((scala.math.BigInt) known.rowCount().get()).doubleValue();
    }
    double width = 8;
    for (int i = 0; i < plan.output().size(); i++) {
      width += ((Attribute) plan.output().apply(i)).dataType().defaultSize();
    }
    return known.sizeInBytes().doubleValue() / width;
  }

  /** Let Spark run this join, and every copy of it. */
  public static Join leaveToSpark(Join join) {
    Join copy = (Join) join.clone();
    copy.setTagValue(LEFT_TO_SPARK, Boolean.TRUE);
    return copy;
  }

  private static int find(Seq columns, AttributeReference column) {
    for (int i = 0; i < columns.size(); i++) {
      if (((Attribute) columns.apply(i)).exprId().equals(column.exprId())) {
        return i;
      }
    }
    return -1;
  }

  private static boolean hinted(Option hint) {
    return hint.isDefined() && ((HintInfo) hint.get()).strategy().isDefined();
  }
}

/** Expressions that cannot be written as SQL and read again. */
class Foreign extends AbstractFunction1 {
  public Object apply(Object node) {
    boolean column = node instanceof AttributeReference;
    boolean foreign = node instanceof PlanExpression || node instanceof ScalaUDF || node instanceof Unevaluable;
    return Boolean.valueOf(foreign && !column);
  }
}

/** A join that Dovetail runs. Nothing is read before it is executed. */
class DovetailJoin extends SparkPlan {
  private final Join join;
  private final Function run;
  private final SparkPlan elsewhere; // made here, where there is a session

  public DovetailJoin(Join join, Function run) {
    this.join = join;
    this.run = run;
    elsewhere = new EmptyRelationExec(LocalRelation$.MODULE$.apply(join.output()));
  }

  public RDD doExecute() {
    return (RDD) run.apply(join);
  }

  public Seq output() {
    return join.output();
  }

  public Seq children() {
    return (Seq) (Object) Nil$.MODULE$;
  }

  /** What explain shows below this. */
  public Seq innerChildren() {
    return (Seq) Nil$.MODULE$.prepended(join);
  }

  public String nodeName() {
    return "DovetailJoin";
  }

  public String simpleString(int most) {
    return "DovetailJoin " + join.joinType() + ", " + ((Expression) join.condition().get()).toString();
  }

  /** Two of them give the same rows only if they are the same. */
  public QueryPlan doCanonicalize() {
    return this;
  }

  /** Executors do not have this class, and generated code takes the plan along: they get an empty relation instead. */
  public Object writeReplace() {
    return elsewhere;
  }

  public SparkPlan makeCopy(Object[] fields) {
    return new DovetailJoin(join, run);
  }

  public TreeNode withNewChildrenInternal(IndexedSeq children) {
    return this;
  }

  public TreeNode clone() {
    return this;
  }

  public int productArity() {
    return 0;
  }

  public Object productElement(int place) {
    throw new IndexOutOfBoundsException(String.valueOf(place));
  }

  public boolean canEqual(Object other) {
    return other == this;
  }
}
