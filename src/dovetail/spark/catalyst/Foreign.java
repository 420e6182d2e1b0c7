package dovetail.catalyst;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.ScalaUDF;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import scala.runtime.AbstractFunction1;

/** Expressions that cannot be written as SQL and read again. */
public class Foreign extends AbstractFunction1 {
  public Object apply(Object node) {
    boolean column = node instanceof AttributeReference;
    boolean foreign = node instanceof PlanExpression || node instanceof ScalaUDF || node instanceof Unevaluable;
    return Boolean.valueOf(foreign && !column);
  }
}
