-- Runs once, when the source's volume is empty. The least that a bridge in publication mode "filtered" needs:
-- a role with REPLICATION, membership in the role that owns the tables, and CREATE on the database (publications).
\set ON_ERROR_STOP on
\getenv shop_password SOURCE_SHOP_PASSWORD
\getenv cdc_password SOURCE_CDC_PASSWORD

CREATE ROLE shop LOGIN PASSWORD :'shop_password';
CREATE ROLE cdc LOGIN REPLICATION PASSWORD :'cdc_password' IN ROLE shop;
GRANT CREATE ON DATABASE shop TO cdc;
ALTER SCHEMA public OWNER TO shop;

-- Something to watch: rows that are written once the bridge runs.
SET ROLE shop;
CREATE TABLE public.customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email text NOT NULL,
    created timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE public.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES public.customers,
    total numeric(12, 2) NOT NULL,
    note text
);
