package dovetail.catalyst;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.DenseRank;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Rank;
import org.apache.spark.sql.catalyst.expressions.RowNumber;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WindowGroupLimit;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * ROW_NUMBER() OVER (PARTITION BY left columns ORDER BY …) <= 3 over a join. A group has all pairs of its left rows, so
 * that its first rows are among the first pairs of each left row: the join need not make others.
 */
public class FirstRows {
  /** The join whose rows are numbered; null if there is none that could make fewer. */
  public static Join join(WindowGroupLimit limit) {
    LogicalPlan plan = limit.child();
    while (plan instanceof Project) {
      plan = ((Project) plan).child();
    }
    String how = plan instanceof Join ? ((Join) plan).joinType().toString() : "";
    boolean fewer = how.equals("Inner") || how.equals("Cross") || how.equals("LeftOuter");
    return fewer && ties(limit) != null ? (Join) plan : null;
  }

  /** The same plan, in which the join says what is needed of it; null if it needs all pairs. */
  public static LogicalPlan marked(SparkSession session, WindowGroupLimit limit, final Join join) {
    for (int i = 0; i < limit.partitionSpec().size(); i++) {
      Expression key = below(limit, (Expression) limit.partitionSpec().apply(i));
      if (!key.deterministic() || !key.references().subsetOf(join.left().outputSet())) {
        return null;
      }
    }
    List order = new ArrayList();
    for (int i = 0; i < limit.orderSpec().size(); i++) {
      String text = text(session, join, (SortOrder) below(limit, (Expression) limit.orderSpec().apply(i)));
      if (text == null) {
        return null;
      }
      order.add(text);
    }
    final Join fewer = new BestPartners(limit.limit(), ties(limit), order).in(join);
    return order.isEmpty() ? null : (LogicalPlan) limit.transformDown(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node == join;
      }
      public Object applyOrElse(Object node, Function1 otherwise) {
        return node == join ? fewer : otherwise.apply(node);
      }
    });
  }

  /** Which pairs are needed beside the first ones of a left row; null if a number says nothing about that. */
  private static String ties(WindowGroupLimit limit) {
    Expression function = limit.rankLikeFunction();
    if (function instanceof RowNumber) {
      return "any";
    }
    return function instanceof Rank || (function instanceof DenseRank && limit.limit() == 1) ? "all" : null;
  }

  /** A key as text; null if Dovetail may order by it in another way. */
  private static String text(SparkSession session, Join join, SortOrder key) {
    Expression value = key.child();
    boolean plain = value.deterministic() && value.find(new Foreign()).isEmpty() && isOrdered(value.dataType());
    if (!plain || value.find(new Risky(SQLConf$.MODULE$.get().ansiEnabled())).isDefined()
        || !ConditionText.isTheSame(session, join, new IsNotNull(value))) {
      return null;
    }
    String nulls = isKnown(value, join) ? "NULLS LAST" : key.nullOrdering().sql();
    return ConditionText.of(join, value) + " " + key.direction().sql() + " " + nulls;
  }

  private static boolean isOrdered(DataType type) {
    return type instanceof NumericType || type instanceof DateType || type instanceof TimestampType
        || type instanceof TimestampNTZType || type instanceof BooleanType || type instanceof BinaryType
        || type.equals(DataTypes.StringType);
  }

  /** Whether a column of an input is never null. */
  private static boolean isKnown(Expression value, Join join) {
    for (int side = 0; side < 2; side++) {
      Seq columns = (side == 0 ? join.left() : join.right()).output();
      for (int i = 0; i < columns.size(); i++) {
        Attribute column = (Attribute) columns.apply(i);
        if (value instanceof AttributeReference && column.exprId().equals(((AttributeReference) value).exprId())) {
          return !column.nullable();
        }
      }
    }
    return !value.nullable();
  }

  /** An expression over the rows of the join, from one over those of the projections above it. */
  private static Expression below(WindowGroupLimit limit, Expression expression) {
    LogicalPlan plan = limit.child();
    while (plan instanceof Project) {
      expression = (Expression) expression.transform(new Computed((Project) plan));
      plan = ((Project) plan).child();
    }
    return expression;
  }
}
