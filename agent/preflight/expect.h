/* expect.h - what a node must have, from three sources: the node's file, overridden by the job's
 * preflight { }, overridden by --expect.
 *
 *   preflight { gpus = 8 driver = "550" disk_free = "100g" skip = {"persistence"} warn = {"shm"} }
 *
 * A node's file has that one section. expect.def lists the keys. In addition there are three
 * lists of names of checks: `only` and `skip` select the checks, and the failures of those in
 * `warn` are warnings.
 *
 * owns     plain memory; texts live inside
 * errors   E_CONFIG with file and line; for --expect E_USAGE
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
    bool node;     /* from the node's file, for the whole node: a job may have fewer */
    uint64_t n;    /* count, bytes, milliseconds, 0 or 1, enum level; of a version the first part */
    char text[32]; /* as it was written */
};

struct expect {
    struct expected is[EXPECT_KEYS];
    uint64_t only, skip, warn; /* a bit a check */
};

/* For the grammars of files that have such a section. */
extern const struct settings_key expect_keys[EXPECT_KEYS];

void expect_init(struct expect *x); /* the defaults */
MUST_USE int expect_section(const struct settings_node *nd, struct expect *x, struct err *e);
MUST_USE int expect_file(const char *path, struct expect *x, struct err *e);
/* "gpus=8" */
MUST_USE int expect_word(const char *text, struct expect *x, struct err *e);
/* "ecc,xid" as bits. */
MUST_USE int expect_names(const char *text, uint64_t *bits, struct err *e);
/* The values of `over` replace those of x, key by key. */
void expect_lay(struct expect *x, const struct expect *over);

bool expect_u64(const struct expect *x, enum expect_key key,
                uint64_t *out); /* false: nothing is expected */
/* Compares "535.104" with "550": below 0, 0, above 0; part by part as numbers, as far as the
 * second one has parts. */
int version_cmp(const char *have, const char *want);

/* Of checks.def. */
const char *check_name(enum check c);
const char *check_what(enum check c);

#endif
