package dovetail.catalyst;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.CollationKey;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownFloatingPointNormalized;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.JoinType$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/** Plans the joins that dovetail.join has made: ordinary joins, whose hint says so. */
public class MarkedJoins extends SparkStrategy {
  private Function runner;

  /** Let a function of Python run the joins of a session. It gets what a join asks for, columns and options. */
  public static void install(SparkSession session, Function runner) {
    MarkedJoins strategy = new MarkedJoins();
    strategy.runner = runner;
    Seq before = session.experimental().extraStrategies();
    session.experimental().extraStrategies_$eq((Seq) before.prepended(strategy));
  }

  public static boolean isIn(SparkSession session) {
    Seq strategies = session.experimental().extraStrategies();
    for (int i = 0; i < strategies.size(); i++) {
      if (strategies.apply(i) instanceof MarkedJoins) {
        return true;
      }
    }
    return false;
  }

  /**
   * A join as Spark's analyzer would make it, from the rows of a cross join filtered by its condition, under names of
   * their own. Columns of the result keep their identity under their new names. Null if the condition cannot be part of
   * such a join. Without options it is Spark's to run.
   */
  public static LogicalPlan build(LogicalPlan filtered, String how, String options, List columns, List names) {
    if (!(filtered instanceof Filter) || !(((Filter) filtered).child() instanceof Project)) {
      return null;
    }
    Project renamed = (Project) ((Filter) filtered).child();
    if (!(renamed.child() instanceof Join)) {
      return null;
    }
    Join cross = (Join) renamed.child();
    Expression condition = (Expression) ((Filter) filtered).condition().transform(new Computed(renamed));
    if (!condition.deterministic() || condition.find(new Foreign()).isDefined()) {
      return null;
    }
    JoinHint hint = cross.hint();
    if (options != null) {
      hint = new JoinHint(Option.apply(new HintInfo(Option.apply(new Marked(options)))), Option.empty());
    }
    JoinType type = JoinType$.MODULE$.apply(how);
    Join join = new Join(cross.left(), cross.right(), type, Option.apply(condition), hint);
    Seq output = join.output();
    Seq list = (Seq) (Object) Nil$.MODULE$;
    boolean same = columns.size() == output.size();
    for (int i = 0; i < columns.size(); i++) {
      int place = ((Integer) columns.get(i)).intValue();
      Attribute column = (Attribute) output.apply(place);
      same = same && place == i && column.name().equals(names.get(i));
      list = (Seq) list.appended(column.withName((String) names.get(i)));
    }
    return same ? join : (LogicalPlan) new Project(list, join);
  }

  public Seq apply(LogicalPlan plan) {
    Seq none = (Seq) (Object) Nil$.MODULE$;
    Counted counted = Counted.find(plan);
    Marking found = Marking.find(counted == null ? plan : counted.rows());
    if (found == null || found.join.isStreaming() || (counted != null && found.filter != null)) {
      return none;
    }
    SparkSession session = (SparkSession) SparkSession.active();
    Join join = JoinStrategy.whole(found.join);
    if (counted != null) {
      return (Seq) none.prepended(counted.summed(session, join, new Run(runner, found)));
    }
    SparkPlan rows = new DovetailJoin(session, join, found.columns, false, new Run(runner, found));
    if (found.filter != null) {
      rows = new FilterExec(found.filter, rows);
    }
    return (Seq) none.prepended(plan instanceof Project ? new ProjectExec(((Project) plan).projectList(), rows) : rows);
  }

  /** The marked joins of a plan that are in no other: for each its place, join, columns and options. */
  public static List nested(LogicalPlan plan) {
    List found = new ArrayList();
    nested(plan, found);
    return found;
  }

  private static void nested(LogicalPlan plan, List found) {
    Marking marking = Marking.find(plan);
    if (marking != null) {
      found.add(Arrays.asList(new Object[] {plan, marking.join, marking.columns, marking.options}));
      return;
    }
    for (int i = 0; i < plan.children().size(); i++) {
      nested((LogicalPlan) plan.children().apply(i), found);
    }
  }

  /** A plan in which the rows of a marked join are those of another plan, whose columns are in the same order. */
  public static LogicalPlan replace(LogicalPlan plan, final LogicalPlan place, final LogicalPlan rows) {
    return (LogicalPlan) plan.transformDown(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node == place;
      }
      public Object applyOrElse(Object node, Function1 otherwise) {
        return node == place ? replaced(place, rows) : otherwise.apply(node);
      }
    });
  }

  private static LogicalPlan replaced(LogicalPlan place, LogicalPlan rows) {
    Marking marking = Marking.find(place);
    Seq none = (Seq) (Object) Nil$.MODULE$;
    Seq list = none;
    for (int i = 0; i < marking.columns.size(); i++) {
      Attribute column = (Attribute) marking.columns.apply(i);
      Expression value = (Expression) rows.output().apply(i);
      list = (Seq) list.appended(new Alias(value, column.name(), column.exprId(), none, Option.empty(), none));
    }
    LogicalPlan made = new Project(list, rows);
    if (marking.filter != null) {
      made = new Filter(marking.filter, made);
    }
    return place instanceof Project ? new Project(((Project) place).projectList(), made) : made;
  }

  /** The join type in the words of Dovetail. */
  public static String how(Join join) {
    return JoinStrategy.how(join);
  }

  /** The condition as SQL; null if Spark would read it as another one. */
  public static String text(SparkSession session, Join join) {
    return JoinStrategy.text(session, join);
  }

  /** The condition of what `build` has made. */
  public static String writtenText(LogicalPlan plan) {
    return ConditionText.of((Join) (plan instanceof Join ? plan : ((Project) plan).child()));
  }

  /** The join for Spark to run. */
  public static Join leaveToSpark(Join join) {
    return DovetailJoin.leaveToSpark(join);
  }

  /** The places of columns in the output of a join. */
  public static String places(Join join, Seq columns) {
    return JoinStrategy.places(join, columns);
  }

  /** The types of columns, but for what in them can be null. */
  public static String types(Seq columns) {
    return JoinStrategy.types(columns);
  }
}

/** A marked join, perhaps with a projection above it: what Dovetail joins, and what is left to Spark. */
class Marking {
  final Join join; // on what Dovetail can evaluate
  final Seq columns; // that are wanted
  final Expression filter; // that was above the join, and that only Spark can evaluate; or null
  final String options;

  private Marking(Join join, Seq columns, Expression filter, String options) {
    this.join = join;
    this.columns = columns;
    this.filter = filter;
    this.options = options;
  }

  /** Null if there is none that Dovetail can run. */
  static Marking find(LogicalPlan plan) {
    boolean projected = plan instanceof Project && ((Project) plan).child() instanceof Join;
    if (!projected && !(plan instanceof Join)) {
      return null;
    }
    Join join = (Join) (projected ? ((Project) plan).child() : plan);
    String options = options(join);
    if (options == null) {
      return null;
    }
    AttributeSet wanted = projected ? plan.references() : join.outputSet();
    Expression ours = null;
    Expression filter = null;
    List conjuncts = new ArrayList();
    if (join.condition().isDefined()) {
      split((Expression) join.condition().get(), conjuncts);
    }
    for (int i = 0; i < conjuncts.size(); i++) {
      Expression conjunct = (Expression) conjuncts.get(i);
      if (conjunct.find(new Foreign()).isDefined()) {
        filter = filter == null ? conjunct : new And(filter, conjunct);
      } else {
        Expression plain = (Expression) conjunct.transform(new Plain());
        ours = ours == null ? plain : new And(ours, plain);
      }
    }
    if (filter != null) {
      if (!JoinStrategy.how(join).equals("inner")) {
        return null;
      }
      wanted = wanted.$plus$plus(filter.references());
    }
    Object condition = ours == null ? Literal$.MODULE$.apply(Boolean.TRUE) : ours;
    Seq columns = (Seq) (Object) Nil$.MODULE$;
    for (int i = 0; i < join.output().size(); i++) {
      Attribute column = (Attribute) join.output().apply(i);
      if (wanted.contains(column)) {
        columns = (Seq) columns.appended(column);
      }
    }
    Join kept = join.copy(join.left(), join.right(), join.joinType(), Option.apply(condition), join.hint());
    return new Marking(kept, columns, filter, options);
  }

  private static void split(Expression condition, List conjuncts) {
    if (condition instanceof And) {
      split(((And) condition).left(), conjuncts);
      split(((And) condition).right(), conjuncts);
    } else {
      conjuncts.add(condition);
    }
  }

  private static String options(Join join) {
    Option hint = join.hint().leftHint();
    if (hint.isEmpty() || ((HintInfo) hint.get()).strategy().isEmpty()) {
      return null;
    }
    Object strategy = ((HintInfo) hint.get()).strategy().get();
    return strategy instanceof Marked ? ((Marked) strategy).options : null;
  }
}

/** Asks Python for the rows of a join. */
class Run implements Function {
  private final Function runner;
  private final Marking marking;

  Run(Function runner, Marking marking) {
    this.runner = runner;
    this.marking = marking;
  }

  public Object apply(Object given) {
    List asked = new ArrayList(Arrays.asList((Object[]) given));
    asked.add(marking.options);
    return runner.apply(asked);
  }
}

/** Spark makes equal floats and equal texts of a collation the same bits before it hashes them; Dovetail compares values. */
class Plain extends AbstractPartialFunction {
  public boolean isDefinedAt(Object node) {
    boolean number = node instanceof KnownFloatingPointNormalized || node instanceof NormalizeNaNAndZero;
    return number || node instanceof CollationKey;
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    if (!isDefinedAt(node)) {
      return otherwise.apply(node);
    }
    Object inner = ((TreeNode) node).children().apply(0);
    return isDefinedAt(inner) ? applyOrElse(inner, otherwise) : inner;
  }
}
