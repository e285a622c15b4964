-- The tables of the pipeline. `embedding` is the type of a vector: `vector` where the extension pgvector is installed,
-- otherwise `jsonb`. Set it with `psql --set=embedding=vector`.
create table files (
  id uuid primary key,
  user_id uuid not null,
  description text,
  file_path text not null,
  name text not null,
  size bigint not null,
  tokens bigint not null,
  type text not null
);
create table file_items (
  file_id uuid not null,
  user_id uuid not null,
  content text not null,
  local_embedding :embedding not null,
  tokens integer not null
);
create table collection_files (
  file_id uuid not null,
  collection_id uuid not null,
  user_id uuid not null,
  primary key (file_id, collection_id)
);
create table file_workspaces (
  file_id uuid not null,
  workspace_id uuid not null,
  user_id uuid not null,
  primary key (file_id, workspace_id)
);
