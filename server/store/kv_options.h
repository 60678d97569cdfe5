/* kv_options.h - how RocksDB is set up, for kv.c alone: what it may keep in memory, how it writes, what each family is like.
 *
 * Each choice has its reason in research/storage-and-libs 1.2 and 1.6; format_version is pinned so that a newer library
 * writes files that an older one can read.
 *
 * owns     the caller destroys what is returned
 */
#ifndef SERVER_STORE_KV_OPTIONS_H
#define SERVER_STORE_KV_OPTIONS_H

#include <rocksdb/c.h>
#include <stdint.h>

rocksdb_options_t *kv_options_new(void); /* of the database */
/* Of one family: the database's, and what its rows are like. cache: of its blocks, shared; cache_bytes: how much that is. */
rocksdb_options_t *kv_options_family(rocksdb_options_t *base, const char *name,
                                     rocksdb_cache_t *cache, uint64_t cache_bytes);

#endif
