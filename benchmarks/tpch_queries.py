"""The 22 queries of TPC-H, with their validation parameters, as Spark runs them."""

from __future__ import annotations

REVENUE = "l_extendedprice * (1 - l_discount)"

QUERIES = {
    "q1": f"""
        SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum({REVENUE}),
            sum({REVENUE} * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL""",
    "q2": """
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr
        FROM part JOIN partsupp ON p_partkey = ps_partkey JOIN supplier ON s_suppkey = ps_suppkey
            JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
        WHERE p_size = 15 AND p_type LIKE '%BRASS' AND r_name = 'EUROPE' AND ps_supplycost = (
            SELECT min(ps_supplycost) FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey
                JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
            WHERE p_partkey = ps_partkey AND r_name = 'EUROPE')
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100""",
    "q3": f"""
        SELECT l_orderkey, sum({REVENUE}) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "q4": """
        SELECT o_orderpriority, count(*) FROM orders
        WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01'
            AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority""",
    "q5": f"""
        SELECT n_name, sum({REVENUE}) FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
            AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
            AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name""",
    "q6": """
        SELECT sum(l_extendedprice * l_discount) FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
            AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "q7": f"""
        SELECT a.n_name AS supplied, b.n_name AS bought, year(l_shipdate) AS y, sum({REVENUE})
        FROM supplier, lineitem, orders, customer, nation a, nation b
        WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
            AND s_nationkey = a.n_nationkey AND c_nationkey = b.n_nationkey
            AND ((a.n_name = 'FRANCE' AND b.n_name = 'GERMANY') OR (a.n_name = 'GERMANY' AND b.n_name = 'FRANCE'))
            AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        GROUP BY ALL""",
    "q8": f"""
        SELECT year(o_orderdate) AS y, sum(IF(b.n_name = 'BRAZIL', {REVENUE}, 0)) / sum({REVENUE})
        FROM part, supplier, lineitem, orders, customer, nation a, nation b, region
        WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
            AND c_nationkey = a.n_nationkey AND a.n_regionkey = r_regionkey AND r_name = 'AMERICA'
            AND s_nationkey = b.n_nationkey AND p_type = 'ECONOMY ANODIZED STEEL'
            AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        GROUP BY y""",
    "q9": f"""
        SELECT n_name, year(o_orderdate) AS y, sum({REVENUE} - ps_supplycost * l_quantity)
        FROM part, supplier, lineitem, partsupp, orders, nation
        WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
            AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%'
        GROUP BY ALL""",
    "q10": f"""
        SELECT c_custkey, c_name, sum({REVENUE}) AS revenue, c_acctbal, n_name
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-10-01'
            AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY ALL ORDER BY revenue DESC, c_custkey LIMIT 20""",
    "q11": """
        SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS worth FROM partsupp, supplier, nation
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY' GROUP BY ps_partkey
        HAVING worth > (SELECT sum(ps_supplycost * ps_availqty) * 0.0001 FROM partsupp, supplier, nation
            WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY')""",
    "q12": """
        SELECT l_shipmode, count_if(o_orderpriority IN ('1-URGENT', '2-HIGH')),
            count_if(o_orderpriority NOT IN ('1-URGENT', '2-HIGH'))
        FROM orders JOIN lineitem ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
            AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode""",
    "q13": """
        SELECT n, count(*) FROM (
            SELECT c_custkey, count(o_orderkey) AS n FROM customer
                LEFT JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
            GROUP BY c_custkey)
        GROUP BY n""",
    "q14": f"""
        SELECT 100.00 * sum(IF(p_type LIKE 'PROMO%', {REVENUE}, 0)) / sum({REVENUE}) FROM lineitem, part
        WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
    "q15": f"""
        WITH revenue AS (
            SELECT l_suppkey AS supplier_no, sum({REVENUE}) AS total FROM lineitem
            WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01' GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, total FROM supplier, revenue
        WHERE s_suppkey = supplier_no AND total = (SELECT max(total) FROM revenue)""",
    "q16": """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) FROM partsupp, part
        WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
            AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
            AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY ALL""",
    "q17": """
        SELECT sum(l_extendedprice) / 7.0 FROM lineitem, part
        WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
            AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    "q18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
        FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY ALL ORDER BY o_totalprice DESC, o_orderdate LIMIT 100""",
    "q19": f"""
        SELECT sum({REVENUE}) FROM lineitem, part
        WHERE p_partkey = l_partkey AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
            (p_brand = 'Brand#12' AND p_container LIKE 'SM %' AND l_quantity BETWEEN 1 AND 11 AND p_size <= 5)
            OR (p_brand = 'Brand#23' AND p_container LIKE 'MED %' AND l_quantity BETWEEN 10 AND 20 AND p_size <= 10)
            OR (p_brand = 'Brand#34' AND p_container LIKE 'LG %' AND l_quantity BETWEEN 20 AND 30 AND p_size <= 15))""",
    "q20": """
        SELECT s_name FROM supplier, nation
        WHERE s_suppkey IN (
                SELECT ps_suppkey FROM partsupp
                WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
                    AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM lineitem
                        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                            AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'))
            AND s_nationkey = n_nationkey AND n_name = 'CANADA'""",
    "q21": """
        SELECT s_name, count(*) AS waited FROM supplier, lineitem a, orders, nation
        WHERE s_suppkey = a.l_suppkey AND o_orderkey = a.l_orderkey AND o_orderstatus = 'F'
            AND a.l_receiptdate > a.l_commitdate
            AND EXISTS (SELECT * FROM lineitem b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey <> a.l_suppkey)
            AND NOT EXISTS (SELECT * FROM lineitem c WHERE c.l_orderkey = a.l_orderkey AND c.l_suppkey <> a.l_suppkey
                AND c.l_receiptdate > c.l_commitdate)
            AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
        GROUP BY s_name ORDER BY waited DESC, s_name LIMIT 100""",
    "q22": """
        SELECT code, count(*), sum(c_acctbal) FROM (
            SELECT substr(c_phone, 1, 2) AS code, c_acctbal FROM customer
            WHERE substr(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
                AND c_acctbal > (SELECT avg(c_acctbal) FROM customer
                    WHERE c_acctbal > 0.00 AND substr(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
                AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey))
        GROUP BY code""",
}
