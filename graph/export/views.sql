-- Views and functions for DuckDB. Start it in the folder of the export:
--
--	duckdb -init views.sql

CREATE OR REPLACE VIEW accounts AS SELECT * FROM 'accounts/*.parquet';
CREATE OR REPLACE VIEW uris AS SELECT * FROM 'uris/*.parquet';

-- The record key that has a time and a clock number.
CREATE OR REPLACE MACRO tid(t, c) AS array_to_string(list_transform(range(0, 13), lambda i:
	substr('234567abcdefghijklmnopqrstuvwxyz', (((epoch_us(t) * 1024 + c) >> CAST(60 - 5 * i AS INTEGER)) & 31)::INTEGER + 1, 1)), '');

-- The id of an account, by its DID, and the reverse.
CREATE OR REPLACE MACRO account(d) AS (SELECT id FROM accounts WHERE did = d);
CREATE OR REPLACE MACRO did(i) AS (SELECT did FROM accounts WHERE id = i);

-- AT URIs with their text.
CREATE OR REPLACE VIEW uri_texts AS
	SELECT u.id, coalesce(u.uri, 'at://' || a.did || '/' || u.collection || '/' || tid(u.time, u.clock)) AS uri
	FROM uris u LEFT JOIN accounts a ON a.id = u.author;
