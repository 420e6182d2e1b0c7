package dovetail.catalyst;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.JoinStrategyHint;
import org.apache.spark.sql.catalyst.plans.logical.NO_BROADCAST_HASH$;
import scala.Option;
import scala.collection.immutable.Set$;
import scala.collection.immutable.Set;

/** What says that no more than the first partners of each left row are needed. Executors know another hint. */
public class BestPartners extends JoinStrategyHint implements Serializable {
  public final int top;
  public final String ties;
  public final List order; // texts

  public BestPartners(int top, String ties, List order) {
    this.top = top;
    this.ties = ties;
    this.order = order;
  }

  /** Those of a join; null if it needs all partners. */
  public static BestPartners of(Join join) {
    Option hint = join.hint().leftHint();
    boolean hinted = hint.isDefined() && ((HintInfo) hint.get()).strategy().isDefined();
    Object strategy = hinted ? ((HintInfo) hint.get()).strategy().get() : null;
    return strategy instanceof BestPartners ? (BestPartners) strategy : null;
  }

  public Join in(Join join) {
    JoinHint hint = new JoinHint(Option.apply(new HintInfo(Option.apply(this))), Option.empty());
    return join.copy(join.left(), join.right(), join.joinType(), join.condition(), hint);
  }

  public String displayName() {
    return "top " + top + " of each left row by " + order;
  }

  public Set hintAliases() {
    return (Set) Set$.MODULE$.empty();
  }

  public boolean equals(Object other) {
    return other instanceof BestPartners && ((BestPartners) other).displayName().equals(displayName())
        && ((BestPartners) other).ties.equals(ties);
  }

  public int hashCode() {
    return displayName().hashCode();
  }

  public Object writeReplace() {
    return NO_BROADCAST_HASH$.MODULE$;
  }
}
