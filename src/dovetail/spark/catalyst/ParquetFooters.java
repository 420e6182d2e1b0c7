package dovetail.catalyst;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.page.DictionaryPage;
import org.apache.parquet.hadoop.DictionaryPageReader;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import scala.collection.immutable.Seq;

/** What the largest Parquet file of a table says of all of them. How well files are compressed is not known otherwise. */
public class ParquetFooters {
  private static final int MOST_KNOWN = 1000;
  private static final int MOST_GROUPS = 4;
  private static final Map KNOWN = Collections.synchronizedMap(new LinkedHashMap()); // numbers, by file and question

  /** About how many rows a table has; -1 if that is not known. */
  public static double rows(LogicalRelation table) {
    Seq files = filesOf(table);
    FileStatus largest = largest(files);
    if (largest == null) {
      return -1;
    }
    double bytes = 0;
    for (int i = 0; i < files.size(); i++) {
      bytes += ((FileStatus) files.apply(i)).getLen();
    }
    return bytes * ask(table, largest, null) / largest.getLen();
  }

  /** About how many values a column has, if these are few enough for a dictionary; else infinitely many. */
  public static double values(LogicalRelation table, String column) {
    FileStatus largest = largest(filesOf(table));
    double counted = largest == null ? -1 : ask(table, largest, column);
    return counted < 0 ? Double.POSITIVE_INFINITY : counted;
  }

  /** Files that are listed already. */
  private static Seq filesOf(LogicalRelation table) {
    if (!(table.relation() instanceof HadoopFsRelation)) {
      return null;
    }
    HadoopFsRelation files = (HadoopFsRelation) table.relation();
    boolean parquet = files.fileFormat().toString().equals("Parquet");
    boolean listed = files.location() instanceof PartitioningAwareFileIndex;
    return parquet && listed ? ((PartitioningAwareFileIndex) files.location()).allFiles().toSeq() : null;
  }

  private static FileStatus largest(Seq files) {
    FileStatus largest = null;
    for (int i = 0; files != null && i < files.size(); i++) {
      FileStatus file = (FileStatus) files.apply(i);
      largest = largest == null || file.getLen() > largest.getLen() ? file : largest;
    }
    return largest;
  }

  /** The rows of a file, or the values of a column; -1 if it cannot be read, or has none. */
  private static double ask(LogicalRelation table, FileStatus file, String column) {
    String question = file.getPath() + "\n" + file.getModificationTime() + "\n" + file.getLen() + "\n" + column;
    Object known = KNOWN.get(question);
    if (known == null) {
      try {
        org.apache.spark.sql.SparkSession session = ((HadoopFsRelation) table.relation()).sparkSession();
        ParquetFileReader reader = ParquetFileReader.open(session.sparkContext().hadoopConfiguration(), file.getPath());
        try {
          known = Double.valueOf(column == null ? (double) reader.getRecordCount() : values(reader, column));
        } finally {
          reader.close();
        }
      } catch (Exception error) { // encrypted, or gone
        known = Double.valueOf(-1);
      }
      if (KNOWN.size() >= MOST_KNOWN) {
        KNOWN.clear();
      }
      KNOWN.put(question, known);
    }
    return ((Double) known).doubleValue();
  }

  /** By the dictionaries of some row groups. Groups with the same extremes are taken to have the same values. */
  private static double values(ParquetFileReader reader, String column) throws Exception {
    List groups = reader.getRowGroups();
    ColumnDescriptor described = null;
    List columns = reader.getFileMetaData().getSchema().getColumns();
    for (int i = 0; i < columns.size(); i++) {
      ColumnDescriptor one = (ColumnDescriptor) columns.get(i);
      described = one.getPath().length == 1 && one.getPath()[0].equalsIgnoreCase(column) ? one : described;
    }
    if (described == null || groups.isEmpty()) {
      return -1;
    }
    int read = Math.min(groups.size(), MOST_GROUPS);
    double most = 0, all = 0;
    String extremes = null;
    boolean same = true;
    for (int i = 0; i < read; i++) {
      BlockMetaData group = (BlockMetaData) groups.get(i);
      ColumnChunkMetaData chunk = chunk(group, described);
      if (chunk == null || chunk.getEncodingStats() == null || chunk.getEncodingStats().hasNonDictionaryEncodedPages()) {
        return -1;
      }
      DictionaryPageReader dictionaries = reader.getDictionaryReader(group);
      DictionaryPage page = dictionaries.readDictionaryPage(described);
      double size = page == null ? 1 : page.getDictionarySize();
      String found = chunk.getStatistics().minAsString() + "\n" + chunk.getStatistics().maxAsString();
      same = same && (extremes == null || extremes.equals(found));
      extremes = found;
      most = Math.max(most, size);
      all += size;
    }
    return Math.max(1, same ? most : all * groups.size() / read);
  }

  private static ColumnChunkMetaData chunk(BlockMetaData group, ColumnDescriptor described) {
    for (int i = 0; i < group.getColumns().size(); i++) {
      ColumnChunkMetaData one = (ColumnChunkMetaData) group.getColumns().get(i);
      if (java.util.Arrays.equals(one.getPath().toArray(), described.getPath())) {
        return one;
      }
    }
    return null;
  }
}
