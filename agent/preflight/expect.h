/* expect.h - what a node must have, said in three places: the node's file, the job's preflight { }
 * over it, --expect over both.
 *
 *   preflight { gpus = 8 driver = "550" disk_free = "100g" skip = {"persistence"} warn = {"shm"} }
 *
 * A node's file holds that one section. Keys are in expect.def; beside them, each a list of names
 * of checks: `only` and `skip`, which are made, and `warn`, whose failures are warnings.
 *
 * owns     plain memory; texts live inside
 * errors   E_CONFIG with file and line; of --expect E_USAGE
 */
#ifndef AGENT_PREFLIGHT_EXPECT_H
#define AGENT_PREFLIGHT_EXPECT_H

#include "common/codec/settings.h"

enum check {
#define LOOK(name, text, group, cost, severity, limit_s, what) CHECK_##name,
#include "agent/preflight/checks.def"
#undef LOOK
    CHECKS
};

enum expect_key {
#define EXPECT(key, kind, by_itself, what) EXPECT_##key,
#include "agent/preflight/expect.def"
#undef EXPECT
    EXPECT_ONLY,
    EXPECT_SKIP,
    EXPECT_WARN,
    EXPECT_KEYS
};

struct expected {
    bool set;
    bool node;  /* the node's own file says it of the whole node: a job may have been given less */
    uint64_t n; /* count, bytes, milliseconds, 0 or 1, enum level; of a version its first part */
    char text[32]; /* as it was written */
};

struct expect {
    struct expected is[EXPECT_KEYS];
    uint64_t only, skip, warn; /* a bit a check */
};

/* For the grammars of files that hold such a section. */
extern const struct settings_key expect_keys[EXPECT_KEYS];

void expect_init(struct expect *x); /* what is expected by itself */
MUST_USE int expect_section(const struct settings_node *nd, struct expect *x, struct err *e);
MUST_USE int expect_file(const char *path, struct expect *x, struct err *e);
/* "gpus=8" */
MUST_USE int expect_word(const char *text, struct expect *x, struct err *e);
/* "ecc,xid" as bits. */
MUST_USE int expect_names(const char *text, uint64_t *bits, struct err *e);
/* What `over` says takes the place of what x says, key by key. */
void expect_lay(struct expect *x, const struct expect *over);

bool expect_u64(const struct expect *x, enum expect_key key,
                uint64_t *out); /* false: nothing is expected */
/* "535.104" beside "550": below 0, 0, above 0, part by part as numbers, as far as the second one
 * has parts. */
int version_cmp(const char *have, const char *want);

/* Of checks.def. */
const char *check_name(enum check c);
const char *check_what(enum check c);

#endif
