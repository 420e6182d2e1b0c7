package dovetail.catalyst;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionOperation;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

/** About how many rows a plan gives, or most of it: by Spark's statistics where they know, else by what is below. */
public class InputRows {
  public static double of(LogicalPlan plan) {
    Statistics known = plan.stats();
    if (known.rowCount().isDefined()) {
      return ((scala.math.BigInt) known.rowCount().get()).doubleValue();
    }
    if (plan instanceof Aggregate && ((Aggregate) plan).groupingExpressions().isEmpty()) {
      return 1;
    }
    if (plan instanceof Project || plan instanceof Filter || plan instanceof Sort || plan instanceof Window
        || plan instanceof RepartitionOperation || plan instanceof Aggregate) {
      return of(child(plan, 0));
    }
    if (plan instanceof Union) {
      double all = 0;
      for (int i = 0; i < plan.children().size(); i++) {
        all += of(child(plan, i));
      }
      return all;
    }
    if (plan instanceof Join) {
      return ofJoin((Join) plan);
    }
    if (plan instanceof LogicalRelation) {
      double counted = ParquetFooters.rows((LogicalRelation) plan);
      if (counted >= 0) {
        return counted;
      }
    }
    return Math.max(1, known.sizeInBytes().doubleValue() / width(plan));
  }

  /** Equal keys are taken for those of one table. */
  private static double ofJoin(Join join) {
    double left = of(join.left()), right = of(join.right());
    String type = join.joinType().toString();
    if (type.equals("LeftSemi") || type.equals("LeftAnti") || type.startsWith("ExistenceJoin")) {
      return left;
    }
    return ExtractEquiJoinKeys$.MODULE$.unapply(join).isDefined() ? Math.max(left, right) : left * right;
  }

  private static double width(LogicalPlan plan) {
    double width = 8;
    for (int i = 0; i < plan.output().size(); i++) {
      width += ((Attribute) plan.output().apply(i)).dataType().defaultSize();
    }
    return width;
  }

  private static LogicalPlan child(LogicalPlan plan, int place) {
    return (LogicalPlan) plan.children().apply(place);
  }
}
