package dovetail.catalyst;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.plans.logical.JoinStrategyHint;
import org.apache.spark.sql.catalyst.plans.logical.NO_BROADCAST_HASH$;
import scala.collection.immutable.Set$;
import scala.collection.immutable.Set;

/** A hint that Spark does not know, so that it chooses among its own joins. Executors know another one, without effect. */
public class LeftToSpark extends JoinStrategyHint implements Serializable {
  public String displayName() {
    return "left_to_spark";
  }

  public Set hintAliases() {
    return (Set) Set$.MODULE$.empty();
  }

  public boolean equals(Object other) {
    return other instanceof LeftToSpark;
  }

  public int hashCode() {
    return 1;
  }

  public Object writeReplace() {
    return NO_BROADCAST_HASH$.MODULE$;
  }
}
