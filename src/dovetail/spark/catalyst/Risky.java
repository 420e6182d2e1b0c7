package dovetail.catalyst;

import org.apache.spark.sql.catalyst.expressions.Abs;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.DivModLike;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Pmod;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import scala.runtime.AbstractFunction1;

/**
 * What Dovetail computes in a way of its own where it goes wrong: division by zero is null, a cast or an overflow is an
 * error. Spark in ANSI mode agrees with the latter as long as it computes the same; otherwise with the former.
 */
public class Risky extends AbstractFunction1 {
  private final boolean ansi;

  public Risky(boolean ansi) {
    this.ansi = ansi;
  }

  public Object apply(Object node) {
    if (node instanceof Cast) {
      DataType from = ((Expression) ((Cast) node).child()).dataType(), to = ((Cast) node).dataType();
      boolean text = from instanceof StringType && !(to instanceof StringType);
      boolean narrow =
          from instanceof NumericType
              && to instanceof NumericType
              && !(to instanceof DoubleType) // a decimal becomes the nearest double
              && !Cast$.MODULE$.canUpCast(from, to);
      return Boolean.valueOf(text || narrow);
    }
    if (node instanceof DivModLike || node instanceof Pmod) {
      Object divisor = ((Expression) node).children().apply(1);
      boolean constant = divisor instanceof Literal && ((Literal) divisor).value() != null && !isZero((Literal) divisor);
      return Boolean.valueOf(ansi && !constant);
    }
    if (node instanceof BinaryArithmetic || node instanceof UnaryMinus || node instanceof Abs) {
      DataType type = ((Expression) node).dataType();
      return Boolean.valueOf(!ansi && (type instanceof IntegralType || type instanceof DecimalType));
    }
    return Boolean.FALSE;
  }

  private static boolean isZero(Literal number) {
    return Double.parseDouble(number.value().toString()) == 0;
  }
}
