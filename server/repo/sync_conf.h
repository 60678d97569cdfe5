/* sync_conf.h - the `sync` section of a repo, as parsed: how its upstream is mirrored as a whole
 * (server/sync).
 *
 * owns     nothing: strings belong to the configuration
 * threads  immutable
 */
#ifndef SERVER_REPO_SYNC_CONF_H
#define SERVER_REPO_SYNC_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The name of a synced repo's one tree, for heads and snapshots. */
#define SYNC_TREE "tree"

struct sync_conf {
    const char *schedule; /* cron or "every 6h"; NULL: only by hand */
    uint32_t jitter_ms;
    const char *engine;           /* NULL: by the URL's scheme */
    const char *ssh;              /* exec-rsync: a program; NULL: "ssh" */
    const char *ssh_key;          /* a file; or NULL */
    const char *known_hosts;      /* likewise */
    const char *list;             /* index, sums, debian, conda, rpm; for such repos hf, pypi */
    const char *const *upstreams; /* tried in order after the origin */
    size_t upstreams_count;
    const char *const *suites; /* Debian's */
    size_t suites_count;
    const char *const *components;
    size_t components_count;
    const char *const *architectures;
    size_t architectures_count;
    const char *const *repos; /* for a Hub: "owner/name@revision" */
    size_t repos_count;
    const char *const *requirements; /* of Python packages; "file:/path": a file of them */
    size_t requirements_count;
    const char *const *python; /* "3.11" */
    size_t python_count;
    const char *const *platforms; /* as in wheels' tags */
    size_t platforms_count;
    const char *index;  /* path of the index below the origin: "simple/" */
    const char *files;  /* "fitting", "all" */
    const char *sdists; /* "never", "missing", "always" */
    uint32_t newest;    /* versions for each requirement; 0: all */
    bool dependencies;
    uint32_t max_projects;
    const char *const *subdirs; /* of conda; or rpm repositories */
    size_t subdirs_count;
    const char *profile;       /* none, debian, conda, pypi, rpm */
    const char *probe;         /* or NULL */
    const char *const *filter; /* "- *.iso", in order: file_filter.h */
    size_t filter_count;
    uint64_t max_size_bytes; /* of one file; 0: no limit */
    const char *links;       /* keep, safe, skip */
    const char *trace;       /* path of a file of ours in each snapshot; or NULL */
    const char *max_delete;  /* "5%", "40000"; NULL: the default */
    uint32_t parallel;
    uint32_t tries;
    uint32_t backoff_ms;
    uint32_t timeout_s;
    uint32_t entries_max;
    uint32_t keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly;
    const char *const *hours; /* "mon-fri 08:00-18:00 10m/s" */
    size_t hours_count;
    const char *const *hook_before; /* a program and its arguments */
    size_t hook_before_count;
    const char *const *hook_published;
    size_t hook_published_count;
    const char *const *hook_held;
    size_t hook_held_count;
    const char *const *hook_failed;
    size_t hook_failed_count;
    uint32_t hook_timeout_s;
};

#endif
