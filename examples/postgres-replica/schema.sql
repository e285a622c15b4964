-- The tables of a small shop, its first customers, and a load that changes everything until the table `load` is empty.
create table customers (
  id bigint primary key,
  name text not null,
  credit numeric(12, 2) not null default 0,
  address jsonb,
  joined timestamptz not null default now()
);
create sequence customer_id;
create table orders (
  id uuid primary key default gen_random_uuid(),
  customer bigint not null references customers on delete cascade on update cascade,
  status text not null default 'new',
  placed timestamptz not null default now(),
  -- Large texts, which PostgreSQL stores apart from their rows. Its log does not repeat them if they do not change.
  note text
);
alter table orders alter note set storage external;
create table order_lines (
  order_id uuid references orders on delete cascade,
  line integer,
  item text not null,
  amount integer not null,
  price numeric(10, 2) not null,
  primary key (order_id, line)
);
-- Rows without a key. They are only inserted, and each must arrive once.
create table visits (at timestamptz not null, customer bigint not null, page text not null);
alter table visits replica identity full;

insert into customers (id, name, address)
  select nextval('customer_id'), 'customer ' || n, jsonb_build_object('city', 'Ulm', 'house', n)
  from generate_series(1, 400) n;
insert into orders (customer, note) select id, repeat(md5(id::text), 100) from customers;
insert into order_lines select id, line, 'item ' || line, line, 9.99 from orders, generate_series(1, 3) line;
insert into visits select now(), n % 400, '/start' from generate_series(1, 2000) n;

create schema load;
create table load.runs ();
insert into load.runs default values;

-- Changes the customers of one session, and what belongs to them, a transaction at a time. Each transaction shares the
-- lock 1: the checker takes this lock for itself, and then sees a state that does not change.
create procedure load.run(session integer, sessions integer) language plpgsql as $$
declare
  chosen bigint;
begin
  while exists (select from load.runs) loop
    perform pg_advisory_xact_lock_shared(1);
    select id into chosen from customers where id % sessions = session order by random() limit 1;
    case floor(random() * 10)::integer
      when 0 then
        insert into customers (id, name) values (nextval('customer_id') * sessions + session, E'it\'s "new" \\ ☃');
      when 1 then
        delete from customers where id = chosen;
      when 2, 3 then
        with new as (
          insert into orders (customer, note)
            select chosen, repeat(md5(n::text), (random() * 200)::integer) from generate_series(1, 3) n
            where chosen is not null returning id
        )
        insert into order_lines select id, line, 'item ' || line, line, random() * 100 from new, generate_series(1, 4) line;
      when 4 then
        delete from orders where id in
          (select id from orders where customer % sessions = session order by random() limit 4);
      when 5 then
        -- The notes stay as they are.
        update orders set status = 'sent at ' || clock_timestamp() where customer = chosen;
      when 6 then
        update order_lines set amount = amount + 1 from orders o where o.id = order_id and o.customer = chosen and line < 3;
      when 7 then
        -- Another key, and with it other customers of orders.
        update customers set id = nextval('customer_id') * sessions + session, credit = credit + 0.01 where id = chosen;
      when 8 then
        insert into visits select clock_timestamp(), chosen, '/page/' || n from generate_series(1, 2) n
          where chosen is not null;
        begin
          update customers set name = 'never seen' where id = chosen;
          raise exception 'rolled back';
        exception when raise_exception then
          null;
        end;
      else
        update customers set address = jsonb_build_object('city', 'Bonn', 'house', random()) where id = chosen;
    end case;
    commit;
    perform pg_sleep(0.01);
  end loop;
end $$;
