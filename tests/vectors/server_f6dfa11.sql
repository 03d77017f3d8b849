-- The tables of a server of commit f6dfa11, as SQLite kept them: no revision is noted there.
BEGIN TRANSACTION;
CREATE TABLE api_tokens (
	id VARCHAR(12) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	scopes TEXT NOT NULL, 
	label VARCHAR(80) NOT NULL, 
	issued_by VARCHAR(32) NOT NULL, 
	issued_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	revoked_at BIGINT NOT NULL, 
	used_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE askings (
	job VARCHAR(64) NOT NULL, 
	until BIGINT NOT NULL, 
	PRIMARY KEY (job)
);
CREATE TABLE charters (
	digest VARCHAR(64) NOT NULL, 
	envelope BLOB NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE coins (
	ctx VARCHAR(64) NOT NULL, 
	step INTEGER NOT NULL, 
	value BLOB NOT NULL, 
	CONSTRAINT one_value_per_toss PRIMARY KEY (ctx, step), 
	FOREIGN KEY(ctx) REFERENCES rounds (ctx)
);
CREATE TABLE he_keys (
	job VARCHAR(64) NOT NULL, 
	silo VARCHAR(63) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	envelope BLOB NOT NULL, 
	CONSTRAINT one_key_per_silo_and_job PRIMARY KEY (job, silo)
);
CREATE TABLE jobs (
	position INTEGER NOT NULL, 
	job VARCHAR(63) NOT NULL, 
	envelope BLOB NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	round BIGINT NOT NULL, 
	aborts INTEGER NOT NULL, 
	model VARCHAR(64) NOT NULL, 
	PRIMARY KEY (position), 
	CONSTRAINT job_state CHECK (state IN ('waiting', 'running', 'finished', 'failed')), 
	UNIQUE (job)
);
CREATE TABLE ledger_heads (
	silo VARCHAR(63) NOT NULL, 
	dataset VARCHAR(63) NOT NULL, 
	seq BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	ctx VARCHAR(64) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	CONSTRAINT one_head_per_silo_and_dataset PRIMARY KEY (silo, dataset), 
	FOREIGN KEY(ctx) REFERENCES rounds (ctx)
);
CREATE TABLE log_checkpoints (
	name VARCHAR(96) NOT NULL, 
	note TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE log_entries (
	seq INTEGER NOT NULL, 
	line BLOB NOT NULL, 
	nodes BLOB NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE messages (
	ctx VARCHAR(64) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	party VARCHAR(63) NOT NULL, 
	envelope BLOB NOT NULL, 
	CONSTRAINT one_message_of_a_kind_per_party_and_round PRIMARY KEY (ctx, kind, party), 
	FOREIGN KEY(ctx) REFERENCES rounds (ctx)
);
CREATE TABLE models (
	digest VARCHAR(64) NOT NULL, 
	architecture VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	published BOOLEAN NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE openings (
	ctx VARCHAR(64) NOT NULL, 
	survivors VARCHAR(64) NOT NULL, 
	PRIMARY KEY (ctx), 
	FOREIGN KEY(ctx) REFERENCES rounds (ctx)
);
CREATE TABLE readiness (
	job VARCHAR(64) NOT NULL, 
	silo VARCHAR(63) NOT NULL, 
	envelope BLOB NOT NULL, 
	CONSTRAINT one_answer_per_silo_and_job PRIMARY KEY (job, silo)
);
CREATE TABLE rounds (
	position INTEGER NOT NULL, 
	ctx VARCHAR(64) NOT NULL, 
	job VARCHAR(63) NOT NULL, 
	round BIGINT NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	duration_ms INTEGER NOT NULL, 
	scrubbed BOOLEAN NOT NULL, 
	PRIMARY KEY (position), 
	CONSTRAINT a_round_number_never_repeats UNIQUE (job, round), 
	UNIQUE (ctx)
);
CREATE TABLE seeds (
	ctx VARCHAR(64) NOT NULL, 
	silo VARCHAR(63) NOT NULL, 
	sealed BLOB NOT NULL, 
	CONSTRAINT one_seed_per_silo_and_round PRIMARY KEY (ctx, silo), 
	FOREIGN KEY(ctx) REFERENCES rounds (ctx)
);
COMMIT;
