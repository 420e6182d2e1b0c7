package dovetail.catalyst;

import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.EmptyRelationExec;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** A leaf of physical plans that is made in the driver, and stays there. */
public abstract class PlanLeaf extends SparkPlan {
  private final Seq columns;
  private final SparkPlan elsewhere; // made here, where there is a session

  public PlanLeaf(Seq columns) {
    this.columns = columns;
    elsewhere = new EmptyRelationExec(LocalRelation$.MODULE$.apply(columns));
  }

  public Seq output() {
    return columns;
  }

  public Seq children() {
    return (Seq) (Object) Nil$.MODULE$;
  }

  /** Two of them give the same rows only if they are the same. */
  public QueryPlan doCanonicalize() {
    return this;
  }

  /** Executors do not have this class, and generated code takes the plan along: they get an empty relation instead. */
  public Object writeReplace() {
    return elsewhere;
  }

  /** Spark marks the copy that it compares plans by, so that it has to be one. */
  public abstract SparkPlan makeCopy(Object[] fields);

  public TreeNode withNewChildrenInternal(IndexedSeq children) {
    return this;
  }

  public TreeNode clone() {
    return this;
  }

  public int productArity() {
    return 0;
  }

  public Object productElement(int place) {
    throw new IndexOutOfBoundsException(String.valueOf(place));
  }

  public boolean canEqual(Object other) {
    return other == this;
  }

  public boolean equals(Object other) {
    return other == this;
  }

  public int hashCode() {
    return System.identityHashCode(this);
  }
}
