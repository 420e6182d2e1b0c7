"""30 queries modelled on TPC-DS and on Spark's own tests of SQL joins, over a shop with a few thousand sales."""

from __future__ import annotations

TABLES = {
    "sales": """
        SELECT id AS sale, (id * 7919) % 211 AS customer, (id * 31) % 97 AS item,
            IF(id % 23 = 0, NULL, id % 12) AS store, DATE '2023-01-01' + CAST((id * 13) % 700 AS INT) AS day,
            1 + id % 7 AS quantity, CAST((id * 104729) % 10000 / 100 AS DECIMAL(10, 2)) AS price,
            TIMESTAMP '2023-01-01 00:00:00' + make_dt_interval((id * 13) % 700, id % 24) AS at
        FROM range({rows})""",
    "returns": """
        SELECT (id * 5) % {rows} AS sale, (id * 7919) % 211 AS customer,
            DATE '2023-01-10' + CAST(id % 700 AS INT) AS day,
            CAST(id % 900 / 10 AS DECIMAL(10, 2)) AS amount, IF(id % 9 = 0, NULL, id % 5) AS reason
        FROM range({rows} DIV 6)""",
    "items": """
        SELECT id AS item, concat('category ', id % 8) AS category, concat('brand ', id % 19) AS brand,
            CAST(id * 1.25 AS DECIMAL(10, 2)) AS list_price, DATE '2022-12-01' + CAST(id * 3 AS INT) AS since,
            IF(id % 10 = 0, NULL, DATE '2023-03-01' + CAST(id * 5 AS INT)) AS until
        FROM range(110)""",
    "stores": """
        SELECT id AS store, concat('state ', id % 4) AS state, DATE '2022-06-01' + CAST(id * 60 AS INT) AS opened,
            IF(id % 3 = 0, DATE '2024-06-01', NULL) AS closed, 100 * id AS area
        FROM range(14)""",
    "customers": """
        SELECT id AS customer, concat('city ', id % 17) AS city, 1940 + id % 65 AS birth,
            CASE WHEN id % 29 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 7 = 0 THEN -0.0D ELSE id * 123.5D END AS income
        FROM range(230)""",
    "bands": "SELECT id AS band, id * 2000.0D AS low, (id + 1) * 2000.0D AS high FROM range(16)",
    "promotions": """
        SELECT id AS promotion, (id * 31) % 97 AS item, DATE '2023-01-01' + CAST(id * 9 AS INT) AS start,
            DATE '2023-01-01' + CAST(id * 9 + 30 AS INT) AS stop, CAST(id % 50 AS DECIMAL(6, 2)) AS cost
        FROM range(80)""",
}

QUERIES = {
    "star": """
        SELECT i.category, s.state, sum(f.quantity), avg(f.price) FROM sales f JOIN items i ON f.item = i.item
            JOIN stores s ON f.store = s.store WHERE f.day BETWEEN DATE '2023-03-01' AND DATE '2023-09-01'
        GROUP BY ALL""",
    "income bands": """
        SELECT b.band, count(*), max(c.income) FROM customers c JOIN bands b ON c.income >= b.low AND c.income < b.high
        GROUP BY b.band""",
    "a sale and its return": """
        SELECT f.sale, datediff(r.day, f.day) AS days FROM sales f JOIN returns r ON f.sale = r.sale
        WHERE r.day > f.day AND r.amount < f.price * f.quantity""",
    "prices of a time": """
        SELECT f.sale, i.list_price FROM sales f JOIN items i
            ON f.item = i.item AND f.day >= i.since AND (i.until IS NULL OR f.day < i.until)""",
    "promotions that were on": """
        SELECT p.promotion, count(f.sale), sum(f.price) FROM promotions p LEFT JOIN sales f
            ON f.day BETWEEN p.start AND p.stop GROUP BY p.promotion""",
    "EXISTS": """
        SELECT c.customer FROM customers c WHERE EXISTS (
            SELECT 1 FROM sales f WHERE f.customer = c.customer AND f.price > 20) AND EXISTS (
            SELECT 1 FROM returns r WHERE r.customer = c.customer AND r.amount > 5)""",
    "EXISTS of a range": """
        SELECT i.item FROM items i WHERE EXISTS (
            SELECT 1 FROM promotions p WHERE p.start > i.since AND p.stop < i.until)""",
    "EXISTS or EXISTS": """
        SELECT c.customer FROM customers c
        WHERE EXISTS (SELECT 1 FROM bands b WHERE c.income BETWEEN b.low + 1500 AND b.high)
            OR EXISTS (SELECT 1 FROM returns r WHERE r.customer = c.customer AND r.reason = 3)""",
    "NOT EXISTS": """
        SELECT f.sale FROM sales f WHERE NOT EXISTS (
            SELECT 1 FROM promotions p WHERE f.day BETWEEN p.start AND p.stop AND p.cost > 20)""",
    "NOT IN": "SELECT item FROM items WHERE item NOT IN (SELECT item FROM sales WHERE quantity = 3)",
    "NOT IN with nulls": "SELECT store FROM stores WHERE store NOT IN (SELECT store FROM sales WHERE quantity = 3)",
    "NOT IN of two columns": """
        SELECT sale FROM sales WHERE (store, quantity) NOT IN (SELECT s.store, s.area DIV 100 FROM stores s)""",
    "IN and a range": """
        SELECT f.sale FROM sales f WHERE f.store IN (SELECT s.store FROM stores s WHERE s.opened < f.day)""",
    "scalar subquery": """
        SELECT f.sale FROM sales f WHERE f.price > (SELECT 1.4 * avg(g.price) FROM sales g WHERE g.store = f.store)""",
    "scalar subqueries of a range": """
        SELECT i.item, (SELECT count(*) FROM promotions p WHERE p.start > i.since) AS later,
            (SELECT max(b.band) FROM bands b WHERE b.low < i.list_price) AS band
        FROM items i""",
    "common table expressions": """
        WITH totals AS (SELECT customer, year(day) AS y, sum(price) AS total FROM sales GROUP BY ALL)
        SELECT a.customer, b.total / a.total FROM totals a JOIN totals b ON a.customer = b.customer
        WHERE a.y = 2023 AND b.y = 2024 AND b.total > a.total""",
    "a range of common table expressions": """
        WITH totals AS (SELECT store, month(day) AS m, sum(price) AS total FROM sales GROUP BY ALL),
            best AS (SELECT m, max(total) AS total FROM totals GROUP BY m)
        SELECT t.store, t.m, count(*) FROM totals t JOIN best b ON t.total > b.total * 0.8 AND t.m <> b.m
        GROUP BY ALL""",
    "UNION of channels": """
        SELECT kind, count(*), sum(amount) FROM (
            SELECT 'sale' AS kind, day, price AS amount FROM sales
            UNION ALL SELECT 'return', day, amount FROM returns) u
            JOIN promotions p ON u.day >= p.start AND u.day < p.stop GROUP BY kind""",
    "INTERSECT and EXCEPT": """
        SELECT customer FROM sales INTERSECT SELECT customer FROM returns
        EXCEPT SELECT c.customer FROM customers c JOIN bands b ON c.income > b.high AND b.band > 3""",
    "LATERAL": """
        SELECT s.store, q.sale, q.price FROM stores s, LATERAL (
            SELECT f.sale, f.price FROM sales f WHERE f.store = s.store ORDER BY f.price DESC, f.sale LIMIT 2) q""",
    "LATERAL of a range": """
        SELECT p.promotion, q.n FROM promotions p LEFT JOIN LATERAL (
            SELECT count(*) AS n FROM sales f WHERE f.day > p.start AND f.day < p.stop) q ON true""",
    "a window over a range": """
        SELECT sale, promotion FROM (
            SELECT f.sale, p.promotion, rank() OVER (PARTITION BY f.sale ORDER BY p.start DESC, p.promotion) AS r
            FROM sales f JOIN promotions p ON p.start <= f.day) WHERE r = 1""",
    "self-join": """
        SELECT a.customer, count(*) FROM sales a JOIN sales b
            ON a.customer = b.customer AND a.day < b.day AND b.day <= a.day + INTERVAL 200 DAYS GROUP BY a.customer""",
    "self-join without an equality": """
        SELECT a.item, count(*) FROM items a JOIN items b
            ON a.since < b.until AND b.since < a.until AND a.item <> b.item
        GROUP BY a.item""",
    "USING": "SELECT category, count(*) FROM sales JOIN items USING (item) JOIN stores USING (store) GROUP BY category",
    "NATURAL": "SELECT count(*), sum(amount) FROM sales NATURAL JOIN returns",
    "FULL OUTER": """
        SELECT f.total, r.total FROM (SELECT customer, sum(price) AS total FROM sales GROUP BY customer) f
            FULL OUTER JOIN (SELECT customer, sum(amount) AS total FROM returns GROUP BY customer) r
            ON f.customer = r.customer AND f.total > 3 * r.total""",
    "FULL OUTER of a range": """
        SELECT c.customer, b.band, r.sale FROM customers c FULL OUTER JOIN bands b
            ON c.income > b.low AND c.income < b.high
            FULL OUTER JOIN returns r ON r.amount > c.birth - 1900 AND r.reason < b.band AND r.sale < 90""",
    "ROLLUP": """
        SELECT s.state, b.band, count(*), grouping_id()
        FROM sales f JOIN stores s ON f.day BETWEEN s.opened AND s.closed
            JOIN bands b ON f.price * 100 >= b.low AND f.price * 100 < b.high GROUP BY ROLLUP (s.state, b.band)""",
    "a join of joins": """
        SELECT l.sale, r.band FROM (sales l JOIN promotions p ON l.item = p.item AND l.day BETWEEN p.start AND p.stop)
            LEFT JOIN (bands r JOIN customers c ON c.income BETWEEN r.low AND r.high) ON l.customer = c.customer
            CROSS JOIN (SELECT max(area) AS area FROM stores) WHERE l.quantity < area""",
}  # fmt: skip
