CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);
CREATE TABLE accounts (
    id         TEXT NOT NULL PRIMARY KEY,
    email      TEXT NOT NULL UNIQUE COLLATE NOCASE,
    key_hash   BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
, password_hash TEXT, key_hint TEXT NOT NULL DEFAULT '', key_made_at INTEGER, confirmed_at INTEGER, mail_off INTEGER NOT NULL DEFAULT 0, disabled_for TEXT) STRICT;
CREATE TABLE stacks (
    seq                   INTEGER PRIMARY KEY AUTOINCREMENT,
    id                    TEXT NOT NULL UNIQUE,
    name                  TEXT NOT NULL,
    status                TEXT NOT NULL,
    owner                 TEXT REFERENCES accounts (id),
    claim_email           TEXT NOT NULL,
    network               TEXT NOT NULL,
    manage_token_hash     BLOB,
    claim_code_hash       BLOB,
    created_at            INTEGER,
    deployed_at           INTEGER,
    expires_at            INTEGER,
    expired_at            INTEGER,
    retained_until        INTEGER,
    generation            INTEGER NOT NULL,
    deploying             INTEGER NOT NULL,
    error                 TEXT NOT NULL,
    deploy_error          TEXT NOT NULL,
    webhook               TEXT NOT NULL,
    services              TEXT NOT NULL, -- JSON, in the manifest's order, without their env
    webhook_secret_sealed BLOB,
    secrets_sealed        BLOB,
    env_sealed            BLOB
, noticed INTEGER NOT NULL DEFAULT 0, attempted TEXT NOT NULL DEFAULT 'null', revoked_token_hash BLOB, attempt INTEGER NOT NULL DEFAULT 0, generation_attempt INTEGER NOT NULL DEFAULT 0, source TEXT NOT NULL DEFAULT '{}', caches_dropped INTEGER NOT NULL DEFAULT 0, last_deploy TEXT NOT NULL DEFAULT '{}', layers TEXT NOT NULL DEFAULT 'null', variables_sealed BLOB, node TEXT NOT NULL DEFAULT '', epoch INTEGER NOT NULL DEFAULT 0, data_key_sealed BLOB, pushed INTEGER NOT NULL DEFAULT 0, snapshot TEXT NOT NULL DEFAULT '{}', regained TEXT NOT NULL DEFAULT '{}', data_volumes TEXT NOT NULL DEFAULT 'null', primary_hosts TEXT NOT NULL DEFAULT 'null', disk TEXT NOT NULL DEFAULT 'null') STRICT;
CREATE TABLE events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    stack_id   TEXT NOT NULL REFERENCES stacks (id),
    type       TEXT NOT NULL,
    data       TEXT NOT NULL, -- JSON object
    created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE deliveries (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    stack_id TEXT NOT NULL REFERENCES stacks (id),
    event_id INTEGER NOT NULL,
    type     TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    duration INTEGER NOT NULL, -- microseconds
    status   INTEGER NOT NULL,
    error    TEXT NOT NULL,
    words    TEXT NOT NULL
) STRICT;
CREATE TABLE sessions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    token_hash   BLOB NOT NULL UNIQUE,
    account      TEXT NOT NULL REFERENCES accounts (id),
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    ip           TEXT NOT NULL,
    user_agent   TEXT NOT NULL
) STRICT;
CREATE TABLE receipts (
    key             TEXT NOT NULL PRIMARY KEY,
    digest          BLOB NOT NULL,
    stack_id        TEXT NOT NULL REFERENCES stacks (id),
    address         TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    answer          TEXT,
    one_time_sealed BLOB
, source TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE webhook_mark (event_id INTEGER NOT NULL, node TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE commands (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    stack_id       TEXT NOT NULL REFERENCES stacks (id),
    service        TEXT NOT NULL,
    run_by         TEXT NOT NULL,
    command_sealed BLOB NOT NULL,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    exit_code      INTEGER,
    timed_out      INTEGER NOT NULL,
    error          TEXT NOT NULL
) STRICT;
CREATE TABLE remains (
    stack_id TEXT NOT NULL REFERENCES stacks (id),
    node     TEXT NOT NULL,
    all_go   INTEGER NOT NULL,
    expected INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    volumes  TEXT NOT NULL DEFAULT 'null',
    seen_at  INTEGER,
    PRIMARY KEY (stack_id, node)
) STRICT;
CREATE TABLE webhook_owed (
    node     TEXT NOT NULL,
    stack_id TEXT NOT NULL REFERENCES stacks (id),
    after_id INTEGER NOT NULL,
    up_to_id INTEGER NOT NULL,
    PRIMARY KEY (node, stack_id)
) STRICT;
CREATE TABLE nodes (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    address       TEXT NOT NULL,
    version       TEXT NOT NULL,
    holder        TEXT NOT NULL,
    registered_at INTEGER NOT NULL,
    renewed_at    INTEGER NOT NULL,
    lease_until   INTEGER NOT NULL,
    lapsed_at     INTEGER,
    stacks        INTEGER NOT NULL DEFAULT 0,
    builds        INTEGER NOT NULL DEFAULT 0,
    room          INTEGER NOT NULL DEFAULT 0,
    empty         TEXT NOT NULL DEFAULT 'null',
    word_state    TEXT NOT NULL DEFAULT '',
    availability  TEXT NOT NULL DEFAULT '',
    labels        TEXT NOT NULL DEFAULT '{}',
    manager       INTEGER NOT NULL DEFAULT 0,
    word_at       INTEGER,
    seen_at       INTEGER,
    lost_at       INTEGER,
    draining      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE installation (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    id          TEXT NOT NULL,
    key_print   TEXT NOT NULL,
    base_url    TEXT NOT NULL,
    apps_domain TEXT NOT NULL,
    cluster     TEXT NOT NULL,
    swarm       TEXT NOT NULL,
    made_at     INTEGER NOT NULL
) STRICT;
CREATE TABLE certificates (
    key          TEXT PRIMARY KEY,
    value_sealed BLOB NOT NULL,
    modified_at  INTEGER NOT NULL
) STRICT;
CREATE TABLE certificate_locks (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    held_until INTEGER NOT NULL
) STRICT;
CREATE TABLE moves (
    stack_id TEXT PRIMARY KEY REFERENCES stacks (id),
    target   TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    error    TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE domains (
    stack_id      TEXT NOT NULL REFERENCES stacks (id),
    host          TEXT NOT NULL,
    service       TEXT NOT NULL,
    status        TEXT NOT NULL,
    reason        TEXT NOT NULL,
    watched_since INTEGER NOT NULL,
    checked_at    INTEGER,
    missing_since INTEGER,
    next_check    INTEGER,
    failed_orders INTEGER NOT NULL,
    order_error   TEXT NOT NULL,
    next_order    INTEGER,
    PRIMARY KEY (stack_id, host)
) STRICT;
CREATE TABLE mails (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT NOT NULL,
    account    TEXT NOT NULL,
    address    TEXT NOT NULL,
    stack_id   TEXT NOT NULL,
    detail     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    try_at     INTEGER,
    tries      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE mail_tokens (
    hash       BLOB PRIMARY KEY,
    kind       TEXT NOT NULL,
    account    TEXT NOT NULL REFERENCES accounts (id),
    stack_id   TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE TABLE bans (
    network    TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    ends_at    INTEGER
) STRICT;
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    uid     INTEGER NOT NULL,
    command TEXT NOT NULL,
    result  TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX stacks_manage_token ON stacks (manage_token_hash) WHERE manage_token_hash IS NOT NULL;
CREATE UNIQUE INDEX stacks_claim_code ON stacks (claim_code_hash) WHERE claim_code_hash IS NOT NULL;
CREATE INDEX stacks_unclaimed ON stacks (network, status) WHERE owner IS NULL;
CREATE INDEX stacks_owned ON stacks (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX stacks_kept ON stacks (seq) WHERE status <> 'deleted';
CREATE INDEX events_of_stack ON events (stack_id, id);
CREATE INDEX deliveries_of_stack ON deliveries (stack_id, id);
CREATE INDEX sessions_of_account ON sessions (account, id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX receipts_by_age ON receipts (created_at);
CREATE INDEX commands_of_stack ON commands (stack_id, seq);
CREATE INDEX stacks_of_node ON stacks (node, seq) WHERE status <> 'deleted';
CREATE UNIQUE INDEX webhook_mark_of_node ON webhook_mark (node);
CREATE INDEX stacks_to_forget ON stacks (seq) WHERE status = 'deleted' AND pushed;
CREATE UNIQUE INDEX domains_active ON domains (host) WHERE status = 'active';
CREATE INDEX domains_of_host ON domains (host);
CREATE INDEX domains_due ON domains (next_check) WHERE next_check IS NOT NULL;
CREATE INDEX mails_due ON mails (try_at) WHERE try_at IS NOT NULL;
CREATE INDEX mail_tokens_of ON mail_tokens (account);
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (1, 0, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (2, 1, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (3, 2, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (4, 3, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (5, 4, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (6, 5, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (7, 6, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (8, 7, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (9, 8, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (10, 9, 1, '2026-11-22 19:26:19');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (11, 10, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (12, 11, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (13, 12, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (14, 13, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (15, 14, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (16, 15, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (17, 16, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (18, 17, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (19, 18, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (20, 19, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (21, 20, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (22, 21, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (23, 22, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (24, 23, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (25, 24, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (26, 25, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (27, 26, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (28, 27, 1, '2026-11-28 12:36:31');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (29, 28, 1, '2026-11-28 12:36:31');
INSERT INTO accounts (id, email, key_hash, created_at, password_hash, key_hint, key_made_at, confirmed_at, mail_off, disabled_for) VALUES ('acc_d5e551b65673', 'ana@example.com', X'F2E99B49300D70470F507A186697D547BBAF5A2FFE11DE85C494FD2CAB6F5973', 1795375597596012, '$argon2id$v=19$m=19456,t=2,p=1$V4kKo7f5ZibYkRHmVk5oPQ$Z7FIWVANV0sBKjpBtX83J7WeuTCQjrKJappkLh2QCSE', 'Q3OZ', 1795375597596012, NULL, 0, NULL);
INSERT INTO stacks (seq, id, name, status, owner, claim_email, network, manage_token_hash, claim_code_hash, created_at, deployed_at, expires_at, expired_at, retained_until, generation, deploying, error, deploy_error, webhook, services, webhook_secret_sealed, secrets_sealed, env_sealed, noticed, attempted, revoked_token_hash, attempt, generation_attempt, source, caches_dropped, last_deploy, layers, variables_sealed, node, epoch, data_key_sealed, pushed, snapshot, regained, data_volumes, primary_hosts, disk) VALUES (1, 'stk_e48d4c9477f1', 'guestbook', 'live', NULL, 'ana@example.com', '127.0.0.1', X'52FEDD3495B3CBD8F6F8DDC912E38966AD127A3BD5949F0F8D13A321C2F2666C', X'A101F597C574209400EC0D387B10F9FA21C47BDE92EF5EB0950EE4E7C74171C8', 1795375610869808, 1795375613725034, 1795418810869808, NULL, NULL, 1, 0, '', '', 'https://hooks.example.com/berth?of=guestbook', '[{"name":"web","label":"node@22","runtime":{"name":"node","version":"22"},"builder":{"name":"node","version":"22"},"root":"web","build":"echo built","release":"test -n \"$SESSION_KEY\"","start":"node server.js","health":"/healthz","depends_on":["api"],"strategy":"recreate","stop_timeout":5000000000,"origin":{"build":"stack.yaml","health":"stack.yaml","release":"stack.yaml","root":"stack.yaml","runtime":"stack.yaml","start":"stack.yaml","stop_timeout":"stack.yaml","strategy":"stack.yaml"},"Status":"running","Image":"berth/e48d4c9477f1-web:g1","Site":0,"SiteFiles":0,"SiteBytes":0,"Fingerprint":"92052c9de2e59d86585a4b9e28f9b0d705bc5e16e706b8e5ff4c43c75ad2fc97","Crashes":null,"Unhealthy":0,"LastExit":null,"InPlace":false,"Replaced":0},{"name":"api","label":"python","runtime":{"name":"python","version":"3.13"},"builder":{"name":""},"root":"api","start":"python3 -u main.py","port":9000,"strategy":"overlap","stop_timeout":10000000000,"origin":{"port":"stack.yaml","root":"stack.yaml","runtime":"stack.yaml","start":"stack.yaml","version":"default"},"Status":"running","Image":"berth/e48d4c9477f1-api:g1","Site":0,"SiteFiles":0,"SiteBytes":0,"Fingerprint":"3fcdd4ab9b8d129892998b332c1dadc0cef6e44b45b567c9afb72498114e34dc","Crashes":null,"Unhealthy":0,"LastExit":null,"InPlace":false,"Replaced":0},{"name":"site","label":"static","runtime":{"name":"static"},"builder":{"name":""},"root":"site","publish":"public","spa":"true","origin":{"publish":"stack.yaml","root":"stack.yaml","runtime":"stack.yaml","spa":"stack.yaml"},"Status":"running","Image":"","Site":1,"SiteFiles":1,"SiteBytes":19,"Fingerprint":"95d6f9f65e5248365c0e0d8f9c862ce2d2251b23c5e7501502314d3bd9c2e547","Crashes":null,"Unhealthy":0,"LastExit":null,"InPlace":false,"Replaced":0}]', X'9A478AC1A33517195BC019E9CA03D8BB49A109B972E0FF01DFFED6B763F7EE9B815DF2179C156B48BAF6448195DE2355A8791BCC77D13D501DD6CADFEB2B5AFB7788504D', X'2B95ED50C49C22A5A5BAA490C7601658700FEFCC342F5B5768E051653E23868219D76D430397A23A4D120545D152E9F62AF20BCA8E54084E07D5A21A1ADF489D3E7FD7D875B45BCB996F3415412784D83E9C', X'AF3E96D0AA5BB8F0CD49BDDD2DED802937F668880A40BD4BD259D42B92F93D4F7A52BD52A05767A0F3C2724D83E475F22DA98A32EC379737BC67E8F3213249FB994D24630541529BB4DD01366F05E9C68866D534B1BDBB4BE62D59BC7E4CE88CC4F5FE1ABAB3BC496BD1A847059218BB521E353AB8ADE2CA2B7B40A9352A3D76C00F0E68F537BD824F2AF509A329EAFE0F7DAB7F2544095BDF473ED2F8081226164C8BEC10C5D255B78794E6B8FEBE747F4287075632BC278C093D05FDCF421AF571935E0059977E30984FE3830BEB6233996146257396364115315C766F286861A64E2FD00A988B1550E9896BE77B56A847C51D89B1D5CBC4D03D82C4194FA761689DA0723FD3A09C1BBB4BB4C3DCA75D09B30DE4EBCF2664E4D3DEEE8595BC3CF6D819AE50', 0, 'null', NULL, 1, 1, '{}', 0, '{}', 'null', NULL, '', 0, NULL, 0, '{}', '{}', 'null', 'null', 'null');
INSERT INTO stacks (seq, id, name, status, owner, claim_email, network, manage_token_hash, claim_code_hash, created_at, deployed_at, expires_at, expired_at, retained_until, generation, deploying, error, deploy_error, webhook, services, webhook_secret_sealed, secrets_sealed, env_sealed, noticed, attempted, revoked_token_hash, attempt, generation_attempt, source, caches_dropped, last_deploy, layers, variables_sealed, node, epoch, data_key_sealed, pushed, snapshot, regained, data_volumes, primary_hosts, disk) VALUES (2, 'stk_d92911442059', 'shop', 'live', 'acc_d5e551b65673', '', '127.0.0.1', X'BEF177A6D97C6CF2A5F13FA836B1814F29C4B340F626F67608F2ED4FC220586B', X'A65DF7D76F05FA6996294B86A31F50C0477A115B342713A83121DE6C1B594BE6', 1795375632222098, 1795375632244461, NULL, NULL, NULL, 1, 0, '', 'service shop: build failed: "exit 3" exited with code 3; it wrote nothing', '', '[{"name":"shop","label":"static","runtime":{"name":"static"},"builder":{"name":""},"root":".","publish":".","spa":"auto","origin":{"publish":"index.html","runtime":"stack.yaml"},"Status":"running","Image":"","Site":1,"SiteFiles":1,"SiteBytes":14,"Fingerprint":"472909c901ab4cc0d8c7c52f789de527e741f6d208f94e8712786ecbf6320fe6","Crashes":null,"Unhealthy":0,"LastExit":null,"InPlace":false,"Replaced":0}]', NULL, X'34BEAD2029519CF1C92F1936D20065EAEBCD797B356BA4A605D4E4318329', NULL, 0, '["shop"]', NULL, 2, 1, '{}', 0, '{}', 'null', NULL, '', 0, NULL, 0, '{}', '{}', 'null', 'null', 'null');
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (1, 'stk_e48d4c9477f1', 'stack.created', '{"anonymous":true}', 1795375610869808);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (2, 'stk_e48d4c9477f1', 'service.building', '{"generation":1,"service":"api"}', 1795375610875488);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (3, 'stk_e48d4c9477f1', 'service.building', '{"generation":1,"service":"site"}', 1795375610879249);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (4, 'stk_e48d4c9477f1', 'service.building', '{"generation":1,"service":"web"}', 1795375611348216);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (5, 'stk_e48d4c9477f1', 'service.ready', '{"service":"site","url":"http://site-e48d4c9477f1.localhost:18765"}', 1795375612189003);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (6, 'stk_e48d4c9477f1', 'service.ready', '{"service":"api","url":"http://api-e48d4c9477f1.localhost:18765"}', 1795375612733760);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (7, 'stk_e48d4c9477f1', 'service.ready', '{"service":"web","url":"http://web-e48d4c9477f1.localhost:18765"}', 1795375613719090);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (8, 'stk_e48d4c9477f1', 'stack.live', '{"expires_at":1795418810.869808,"generation":1,"urls":{"api":"http://api-e48d4c9477f1.localhost:18765","site":"http://site-e48d4c9477f1.localhost:18765","web":"http://web-e48d4c9477f1.localhost:18765"}}', 1795375613725034);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (9, 'stk_d92911442059', 'stack.created', '{"anonymous":true}', 1795375632222098);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (10, 'stk_d92911442059', 'service.building', '{"generation":1,"service":"shop"}', 1795375632230103);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (11, 'stk_d92911442059', 'service.ready', '{"service":"shop","url":"http://shop-d92911442059.localhost:18765"}', 1795375632242406);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (12, 'stk_d92911442059', 'stack.live', '{"expires_at":1795379232.222098,"generation":1,"urls":{"shop":"http://shop-d92911442059.localhost:18765"}}', 1795375632244461);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (13, 'stk_e48d4c9477f1', 'stack.restored', '{"urls":{"api":"http://api-e48d4c9477f1.localhost:18765","site":"http://site-e48d4c9477f1.localhost:18765","web":"http://web-e48d4c9477f1.localhost:18765"}}', 1795375654227472);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (14, 'stk_d92911442059', 'stack.restored', '{"urls":{"shop":"http://shop-d92911442059.localhost:18765"}}', 1795375654234141);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (15, 'stk_d92911442059', 'stack.claimed', '{"by":"ana@example.com"}', 1795375658482832);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (16, 'stk_d92911442059', 'stack.redeploying', '{"generation":2}', 1795375658512372);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (17, 'stk_d92911442059', 'service.building', '{"generation":2,"service":"shop"}', 1795375658516974);
INSERT INTO events (id, stack_id, type, data, created_at) VALUES (18, 'stk_d92911442059', 'stack.deploy_failed', '{"error":"service shop: build failed: \"exit 3\" exited with code 3; it wrote nothing","generation":2,"serving_generation":1}', 1795375659595043);
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (1, 'stk_e48d4c9477f1', 1, 'stack.created', 1, 1795375610872995, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (2, 'stk_e48d4c9477f1', 3, 'service.building', 1, 1795375610888884, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (3, 'stk_e48d4c9477f1', 2, 'service.building', 1, 1795375610884806, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (4, 'stk_e48d4c9477f1', 4, 'service.building', 1, 1795375611353738, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (5, 'stk_e48d4c9477f1', 3, 'service.building', 2, 1795375611902168, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (6, 'stk_e48d4c9477f1', 2, 'service.building', 2, 1795375611901534, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (7, 'stk_e48d4c9477f1', 1, 'stack.created', 2, 1795375611901959, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (8, 'stk_e48d4c9477f1', 5, 'service.ready', 1, 1795375612191058, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (9, 'stk_e48d4c9477f1', 4, 'service.building', 2, 1795375612403163, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (10, 'stk_e48d4c9477f1', 6, 'service.ready', 1, 1795375612737272, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (11, 'stk_e48d4c9477f1', 5, 'service.ready', 2, 1795375613201543, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (12, 'stk_e48d4c9477f1', 7, 'service.ready', 1, 1795375613721818, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (13, 'stk_e48d4c9477f1', 8, 'stack.live', 1, 1795375613727936, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (14, 'stk_e48d4c9477f1', 6, 'service.ready', 2, 1795375613751678, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (15, 'stk_e48d4c9477f1', 7, 'service.ready', 2, 1795375614751640, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (16, 'stk_e48d4c9477f1', 8, 'stack.live', 2, 1795375614752172, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (17, 'stk_e48d4c9477f1', 1, 'stack.created', 3, 1795375616951651, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (18, 'stk_e48d4c9477f1', 3, 'service.building', 3, 1795375616951005, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (19, 'stk_e48d4c9477f1', 2, 'service.building', 3, 1795375616951528, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (20, 'stk_e48d4c9477f1', 4, 'service.building', 3, 1795375617451369, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (21, 'stk_e48d4c9477f1', 5, 'service.ready', 3, 1795375618250979, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (22, 'stk_e48d4c9477f1', 6, 'service.ready', 3, 1795375618801390, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (23, 'stk_e48d4c9477f1', 7, 'service.ready', 3, 1795375619801652, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (24, 'stk_e48d4c9477f1', 8, 'stack.live', 3, 1795375619802057, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (25, 'stk_e48d4c9477f1', 13, 'stack.restored', 1, 1795375654233252, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (26, 'stk_e48d4c9477f1', 13, 'stack.restored', 2, 1795375655251938, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO deliveries (id, stack_id, event_id, type, attempt, at, duration, status, error, words) VALUES (27, 'stk_e48d4c9477f1', 13, 'stack.restored', 3, 1795375660301473, 0, 0, 'there was no answer; the URL has to be one that the internet reaches, with a valid certificate if it is https', '');
INSERT INTO sessions (id, token_hash, account, created_at, last_used_at, expires_at, ip, user_agent) VALUES (1, X'EED83EE51367B359F5D9839E801254CBE35E76D9786F4FF6442B342707EA73AB', 'acc_d5e551b65673', 1795375597597360, 1795375597597360, 1797967597597358, '127.0.0.1', 'curl/7.88.1');
INSERT INTO receipts (key, digest, stack_id, address, created_at, answer, one_time_sealed, source) VALUES ('623c7368f7c2952917f5499ce573925f24d573133e4474a29e0844a59a7856e7', X'B26A980178F0F2E5C1467F11E8EB36CE9D59139EA6F026D3226CE384F879BF66', 'stk_e48d4c9477f1', '127.0.0.1', 1795375610869855, '{"id":"stk_e48d4c9477f1","name":"guestbook","status":"live","claimed":false,"urls":{"api":"http://api-e48d4c9477f1.localhost:18765","site":"http://site-e48d4c9477f1.localhost:18765","web":"http://web-e48d4c9477f1.localhost:18765"},"services":[{"name":"web","runtime":"node@22","status":"running","url":"http://web-e48d4c9477f1.localhost:18765"},{"name":"api","runtime":"python","status":"running","url":"http://api-e48d4c9477f1.localhost:18765"},{"name":"site","runtime":"static","status":"running","url":"http://site-e48d4c9477f1.localhost:18765"}],"created_at":1795375610.869808,"expires_at":1795418810.869808,"expired_at":null,"retained_until":null,"generation":1,"deploying":null,"error":null,"deploy_error":null}', X'649F60FABE2EE8B630293443C23854B92BA3CE3104375240961897BD7BC3D34E5AB2CF3EF655D868F355580B053B7D7E5726357A8DC1873E3082CBB3B501EA6EEE845B0C74BC675D70004FA485120E5A663B0CAE955E5D0B74D24EEF1E2CD502C0EB9881B56244E3FB01B77D3BCD53D6250DB29C017D4EF58BA5BF6815D2FA6171647A6DB637F4DB3CFDB859FABE2E8AFE5300F179FB039C174FF9CF9C70BDA9005C4152FEA2D366F22FF31B3BF21370407BD4715A831B7599239BF62368D8AEC4B2BC9CB7B3691F30FBFB5D6E1941474D7212C3694AB782A18D0537B5CD7114C679749CDB9FCE9E3E560054F91FEB0781D821B1FDB694DB8F02B52ED10AA252E852A5B6453E12E927EF69339915B8306CF8B8FDE9E84B4EF722DCA656D2E0D2FE0B65C93FF9BFC2295665E65375DED4D1B17A7246BC735F970499B62DAD80F4B3B6448AD3DA90D6CEEAD4856A9DAE6E4760F812B3E17D631A957E26651AE06965B10A7EBF859F8559BA02CFD0F7ECF513B6F42908BE2C593706A61C6D39D658F552767389958AAC776B31F5270546C8', '');
INSERT INTO webhook_mark (event_id, node) VALUES (18, '');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence (name, seq) VALUES ('goose_db_version', 29);
INSERT INTO sqlite_sequence (name, seq) VALUES ('sessions', 1);
INSERT INTO sqlite_sequence (name, seq) VALUES ('stacks', 2);
INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 18);
INSERT INTO sqlite_sequence (name, seq) VALUES ('deliveries', 27);
