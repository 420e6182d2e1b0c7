package dovetail.catalyst;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Pmod;
import org.apache.spark.sql.catalyst.expressions.Remainder;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import scala.Option;
import scala.Tuple8;
import scala.collection.immutable.Seq;

/** How many values keys have, at most, as far as plans, statistics and dictionaries of Parquet files tell. */
public class KeyValues {
  private static final double UNKNOWN = Double.POSITIVE_INFINITY;

  /** Groups of equal keys that a join has; infinitely many if that is not known, and one without equal keys. */
  public static double of(Join join) {
    Option found = ExtractEquiJoinKeys$.MODULE$.unapply(join);
    if (found.isEmpty()) {
      return 1;
    }
    Tuple8 keys = (Tuple8) found.get();
    if (((Option) keys._4()).isEmpty()) { // equal keys are all that is asked for
      return UNKNOWN;
    }
    return Math.min(all(join.left(), (Seq) keys._2()), all(join.right(), (Seq) keys._3()));
  }

  private static double all(LogicalPlan plan, Seq keys) {
    double product = 1;
    for (int i = 0; i < keys.size(); i++) {
      product *= of(plan, (Expression) keys.apply(i));
    }
    return product;
  }

  private static double of(LogicalPlan plan, Expression key) {
    if (key instanceof Literal) {
      return 1;
    }
    double few = key.dataType() instanceof BooleanType ? 2 : key.dataType() instanceof ByteType ? 256 : UNKNOWN;
    if (key instanceof Pmod || key instanceof Remainder) {
      Expression divisor = (Expression) key.children().apply(1);
      if (divisor instanceof Literal && ((Literal) divisor).value() instanceof Number) {
        double values = Math.abs(((Number) ((Literal) divisor).value()).doubleValue());
        return Math.min(few, key instanceof Pmod ? values : 2 * values - 1);
      }
    }
    if (key instanceof Cast) {
      return Math.min(few, of(plan, (Expression) key.children().apply(0)));
    }
    double parts = ofPart(key.getClass().getSimpleName());
    return Math.min(few, key instanceof AttributeReference ? ofColumn(plan, (AttributeReference) key) : parts);
  }

  /** Parts of a time. */
  private static double ofPart(String function) {
    if (function.equals("Quarter")) return 4;
    if (function.equals("DayOfWeek") || function.equals("WeekDay")) return 7;
    if (function.equals("Month")) return 12;
    if (function.equals("Hour")) return 24;
    if (function.equals("DayOfMonth")) return 31;
    if (function.equals("Minute") || function.equals("Second")) return 60;
    return UNKNOWN;
  }

  private static double ofColumn(LogicalPlan plan, AttributeReference column) {
    Option known = plan.stats().attributeStats().get(column);
    if (known.isDefined()) {
      Option counted = ((org.apache.spark.sql.catalyst.plans.logical.ColumnStat) known.get()).distinctCount();
      if (counted.isDefined()) {
        return ((scala.math.BigInt) counted.get()).doubleValue();
      }
    }
    if (plan instanceof LogicalRelation) {
      return ParquetFooters.values((LogicalRelation) plan, column.name());
    }
    Seq made = plan instanceof Project ? ((Project) plan).projectList()
        : plan instanceof Aggregate ? ((Aggregate) plan).aggregateExpressions() : null;
    for (int i = 0; made != null && i < made.size(); i++) {
      Object one = made.apply(i);
      if (one instanceof Alias && ((Alias) one).exprId().equals(column.exprId())) {
        return of(child(plan, 0), ((Alias) one).child());
      }
    }
    for (int i = 0; i < plan.children().size() && !(plan instanceof Union); i++) {
      Seq output = child(plan, i).output();
      for (int j = 0; j < output.size(); j++) {
        if (((Attribute) output.apply(j)).exprId().equals(column.exprId())) {
          return ofColumn(child(plan, i), column);
        }
      }
    }
    return UNKNOWN;
  }

  private static LogicalPlan child(LogicalPlan plan, int place) {
    return (LogicalPlan) plan.children().apply(place);
  }
}
