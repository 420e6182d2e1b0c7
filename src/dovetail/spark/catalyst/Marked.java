package dovetail.catalyst;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.plans.logical.JoinStrategyHint;
import org.apache.spark.sql.catalyst.plans.logical.NO_BROADCAST_HASH$;
import scala.collection.immutable.Set$;
import scala.collection.immutable.Set;

/** What says that a join is one of Dovetail, and its options. Executors know another hint, which changes nothing. */
public class Marked extends JoinStrategyHint implements Serializable {
  public final String options;

  public Marked(String options) {
    this.options = options;
  }

  public String displayName() {
    return "dovetail" + (options.equals("{}") ? "" : " " + options);
  }

  public Set hintAliases() {
    return (Set) Set$.MODULE$.empty();
  }

  public boolean equals(Object other) {
    return other instanceof Marked && ((Marked) other).options.equals(options);
  }

  public int hashCode() {
    return options.hashCode();
  }

  public Object writeReplace() {
    return NO_BROADCAST_HASH$.MODULE$;
  }
}
