package dovetail.catalyst;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** Columns of a projection as what they are computed from. */
public class Computed extends AbstractPartialFunction {
  private final Map values = new HashMap();

  public Computed(Project projection) {
    for (int i = 0; i < projection.projectList().size(); i++) {
      Object column = projection.projectList().apply(i);
      if (column instanceof Alias) {
        values.put(((Alias) column).exprId(), ((Alias) column).child());
      }
    }
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof AttributeReference && values.containsKey(((AttributeReference) node).exprId());
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    return isDefinedAt(node) ? values.get(((AttributeReference) node).exprId()) : otherwise.apply(node);
  }
}
