package dovetail.catalyst;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.optimizer.ConstantFolding$;
import org.apache.spark.sql.catalyst.optimizer.OptimizeIn$;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.optimizer.SimplifyCasts$;
import org.apache.spark.sql.catalyst.plans.JoinType$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.Metadata$;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/** The condition of a join as SQL. Python reads no other. */
public class ConditionText {
  /** Over columns l.c0, l.c1, … and r.c0, r.c1, … */
  public static String of(Join join) {
    return of(join, (Expression) join.condition().get());
  }

  /** The same of another expression over both sides. */
  public static String of(Join join, Expression expression) {
    final Seq left = join.left().output();
    final Seq right = join.right().output();
    Object renamed = expression.transform(new AbstractPartialFunction() {
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

  /**
   * Whether Spark reads the text as the condition that it was written from. It need not: the hour that a clock shows
   * twice is written like the first one, and a view has computed in the mode and time zone in which it was made.
   */
  public static boolean isTheSame(SparkSession session, Join join) {
    return isTheSame(session, join, (Expression) join.condition().get());
  }

  /** The same of another condition over both sides. */
  public static boolean isTheSame(SparkSession session, Join join, Expression condition) {
    try {
      LogicalPlan sides = new Join(side("l", join.left()), side("r", join.right()), JoinType$.MODULE$.apply("cross"),
          Option.empty(), JoinHint$.MODULE$.NONE());
      Expression parsed = session.sessionState().sqlParser().parseExpression(of(join, condition));
      LogicalPlan read = (LogicalPlan) session.sessionState().analyzer().execute(new Filter(parsed, sides));
      LogicalPlan given = new Filter(condition, sides);
      return read.resolved() && condition(read).semanticEquals(condition(given));
    } catch (Exception error) { // there is no SQL for a part of it
      return false;
    }
  }

  /** As the optimizer leaves it. */
  private static Expression condition(LogicalPlan filter) {
    LogicalPlan plan = ReplaceExpressions$.MODULE$.apply(filter);
    plan = SimplifyCasts$.MODULE$.apply(ConstantFolding$.MODULE$.apply(plan));
    return ((Filter) OptimizeIn$.MODULE$.apply(plan)).condition();
  }

  /** The columns of an input under the names of the text. */
  private static LogicalPlan side(String name, LogicalPlan input) {
    Seq columns = (Seq) (Object) Nil$.MODULE$;
    for (int i = 0; i < input.output().size(); i++) {
      Attribute one = (Attribute) input.output().apply(i);
      Seq unqualified = (Seq) (Object) Nil$.MODULE$;
      columns = (Seq) columns.appended(new AttributeReference(
          "c" + i, one.dataType(), one.nullable(), Metadata$.MODULE$.empty(), one.exprId(), unqualified));
    }
    return SubqueryAlias$.MODULE$.apply(name, LocalRelation$.MODULE$.apply(columns));
  }

  private static int find(Seq columns, AttributeReference column) {
    for (int i = 0; i < columns.size(); i++) {
      if (((Attribute) columns.apply(i)).exprId().equals(column.exprId())) {
        return i;
      }
    }
    return -1;
  }
}
