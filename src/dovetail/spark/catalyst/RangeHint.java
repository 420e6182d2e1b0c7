package dovetail.catalyst;

import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Filter;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.filter.AbstractFilter;

/** A RANGE_JOIN hint asks for what happens anyway: Spark leaves it out, and need not say that it does not know it. */
public class RangeHint extends AbstractFilter {
  private static final String LOGGER = "org.apache.spark.sql.catalyst.analysis.HintErrorLogger";
  private static boolean understood;

  public static synchronized void understand() {
    if (understood || !(LogManager.getContext(false) instanceof LoggerContext)) {
      return;
    }
    LoggerContext context = (LoggerContext) LogManager.getContext(false);
    Configuration configuration = context.getConfiguration();
    LoggerConfig logger = configuration.getLoggerConfig(LOGGER);
    if (!logger.getName().equals(LOGGER)) {
      logger = new LoggerConfig(LOGGER, logger.getLevel(), true);
      configuration.addLogger(LOGGER, logger);
    }
    logger.addFilter(new RangeHint());
    context.updateLoggers();
    understood = true;
  }

  public Filter.Result filter(LogEvent event) {
    boolean known = event.getMessage().getFormattedMessage().toUpperCase().contains("RANGE_JOIN");
    return known ? Filter.Result.DENY : Filter.Result.NEUTRAL;
  }
}
