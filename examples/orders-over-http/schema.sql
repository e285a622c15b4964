CREATE TABLE orders (
  id         bigint PRIMARY KEY,
  customer   text NOT NULL,
  amount     numeric(10, 2) NOT NULL,
  updated_at timestamptz NOT NULL
);
