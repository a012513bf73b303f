ALTER TABLE entries ADD COLUMN at timestamptz NOT NULL DEFAULT now();
