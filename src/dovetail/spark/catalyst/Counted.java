package dovetail.catalyst;

import java.util.ArrayList;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkPlan$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** A query that asks a join only for its number of rows, such as SELECT count(*): pairs are counted, and not made. */
public class Counted {
  private final Aggregate aggregate;
  public final Join join;

  private Counted(Aggregate aggregate, Join join) {
    this.aggregate = aggregate;
    this.join = join;
  }

  /** Null if the plan asks for anything else. */
  public static Counted find(LogicalPlan plan) {
    if (!(plan instanceof Aggregate) || !((Aggregate) plan).groupingExpressions().isEmpty()) {
      return null;
    }
    Aggregate aggregate = (Aggregate) plan;
    LogicalPlan rows = aggregate.child();
    while (rows instanceof Project) {
      rows = ((Project) rows).child();
    }
    Seq values = aggregate.aggregateExpressions();
    boolean counts = false;
    for (int i = 0; i < values.size(); i++) {
      Expression value = (Expression) values.apply(i);
      counts = counts || value.find(new RowCount(true)).isDefined();
      if (value.find(new RowCount(false)).isDefined()) {
        return null;
      }
    }
    return counts && rows instanceof Join ? new Counted(aggregate, (Join) rows) : null;
  }

  /** A projection of no columns, over the join. */
  public Project rows() {
    return new Project((Seq) (Object) Nil$.MODULE$, join);
  }

  /** The aggregate as a sum of the numbers that tasks have counted. */
  public SparkPlan summed(SparkSession session, Join whole, Function run) {
    StructType one = new StructType().add("rows", DataTypes.LongType, false);
    Aggregate sum = (Aggregate) session.createDataFrame(new ArrayList(), one)
        .selectExpr(new String[] {"coalesce(sum(rows), 0L)"}).queryExecution().analyzed();
    LogicalPlan numbers = sum.child();
    Expression total = (Expression) ((Expression) sum.aggregateExpressions().apply(0)).children().apply(0);
    Seq children = (Seq) ((Seq) (Object) Nil$.MODULE$).prepended(numbers);
    LogicalPlan over = (LogicalPlan) ((LogicalPlan) aggregate.withNewChildren(children))
        .transformExpressions(new Replaced(new RowCount(true), total));
    SparkPlan planned = (SparkPlan) session.sessionState().planner().plan(over).next();
    SparkPlan counts = new DovetailJoin(session, whole, numbers.output(), true, run);
    planned = (SparkPlan) planned.transformUp(new Replaced(new IsLeaf(), counts));
    planned.foreach(new Unlinked());
    return planned;
  }
}

/** Finds counts of all rows; or what is computed from several rows in another way, or read from columns. */
class RowCount extends AbstractFunction1 {
  private final boolean wanted;

  RowCount(boolean wanted) {
    this.wanted = wanted;
  }

  public Object apply(Object node) {
    if (!(node instanceof AggregateExpression)) {
      return Boolean.FALSE;
    }
    AggregateExpression aggregate = (AggregateExpression) node;
    boolean all = aggregate.aggregateFunction() instanceof Count && !aggregate.isDistinct() && aggregate.filter().isEmpty();
    Seq counted = aggregate.aggregateFunction().children();
    for (int i = 0; i < counted.size(); i++) {
      all = all && counted.apply(i) instanceof Literal && ((Literal) counted.apply(i)).value() != null;
    }
    return Boolean.valueOf(all == wanted);
  }
}

class IsLeaf extends AbstractFunction1 {
  public Object apply(Object node) {
    return Boolean.valueOf(((SparkPlan) node).children().isEmpty());
  }
}

/** Replaces nodes. */
class Replaced extends AbstractPartialFunction {
  private final Function1 which;
  private final Object by;

  Replaced(Function1 which, Object by) {
    this.which = which;
    this.by = by;
  }

  public boolean isDefinedAt(Object node) {
    return ((Boolean) which.apply(node)).booleanValue();
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    return isDefinedAt(node) ? by : otherwise.apply(node);
  }
}

/** An adaptive plan finds what has run by the query's own aggregate, and not by the one that replaces it. */
class Unlinked extends AbstractFunction1 {
  public Object apply(Object node) {
    ((SparkPlan) node).unsetTagValue(SparkPlan$.MODULE$.LOGICAL_PLAN_TAG());
    ((SparkPlan) node).unsetTagValue(SparkPlan$.MODULE$.LOGICAL_PLAN_INHERITED_TAG());
    return null;
  }
}
