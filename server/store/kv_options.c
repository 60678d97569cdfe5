#include "server/store/kv_options.h"

#include <string.h>

rocksdb_options_t *kv_options_new(void)
{
    rocksdb_options_t *o = rocksdb_options_create();

    rocksdb_options_set_create_if_missing(o, 1);
    rocksdb_options_set_create_missing_column_families(o, 1);
    rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
    rocksdb_options_set_db_write_buffer_size(o, (size_t)64 << 20);
    rocksdb_options_set_write_buffer_size(o, (size_t)16 << 20);
    /* Most looks are for digests that are not there: a filter of some 300 KiB a memtable answers them. */
    rocksdb_options_set_memtable_whole_key_filtering(o, 1);
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(o, 0.02);
    rocksdb_options_set_max_total_wal_size(o, (uint64_t)64 << 20); /* replay: some 25 MB/s */
    rocksdb_options_set_max_background_jobs(o, 2);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
    rocksdb_options_set_compression(o, rocksdb_lz4_compression);
    rocksdb_options_set_bytes_per_sync(o, 1 << 20);
    rocksdb_options_set_wal_bytes_per_sync(o, 1 << 20);
    rocksdb_options_set_max_open_files(o, 4096);
    rocksdb_options_set_stats_dump_period_sec(o, 0);
    rocksdb_options_set_keep_log_file_num(o, 5);
    rocksdb_options_set_max_log_file_size(o, (size_t)16 << 20);
    rocksdb_options_set_info_log_level(o, 2); /* warnings */
    return o;
}

static void set_tables(rocksdb_options_t *o, rocksdb_cache_t *cache, bool ribbon)
{
    rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();

    rocksdb_block_based_options_set_format_version(t, 5);
    rocksdb_block_based_options_set_block_size(t, 16 << 10);
    rocksdb_block_based_options_set_block_cache(t, cache);
    rocksdb_block_based_options_set_index_type(
        t, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(t, 1);
    rocksdb_block_based_options_set_metadata_block_size(t, 4096);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(t, 1);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(t, 1);
    /* The table options take the policy. */
    rocksdb_block_based_options_set_filter_policy(
        t, ribbon ? rocksdb_filterpolicy_create_ribbon_hybrid(10, 1)
                  : rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(o, t);
    rocksdb_block_based_options_destroy(t);
}

/* Inline blobs: values in blob files, which compaction does not rewrite, with a cache of their own so that they do not
 * flush metadata out. */
static void set_inline(rocksdb_options_t *o, uint64_t cache_bytes)
{
    rocksdb_cache_t *cache = rocksdb_cache_create_lru((size_t)cache_bytes);

    rocksdb_options_set_enable_blob_files(o, 1);
    rocksdb_options_set_min_blob_size(o, 512);
    rocksdb_options_set_blob_file_size(o, (uint64_t)64 << 20);
    rocksdb_options_set_blob_compression_type(o, rocksdb_no_compression);
    rocksdb_options_set_enable_blob_gc(o, 1);
    rocksdb_options_set_blob_gc_age_cutoff(o, 0.25);
    rocksdb_options_set_blob_gc_force_threshold(o, 0.5);
    rocksdb_options_set_blob_cache(o, cache);
    rocksdb_cache_destroy(cache);
}

rocksdb_options_t *kv_options_family(rocksdb_options_t *base, const char *name,
                                     rocksdb_cache_t *cache, uint64_t cache_bytes)
{
    rocksdb_options_t *o = rocksdb_options_create_copy(base);

    set_tables(o, cache, strcmp(name, "blob") == 0);
    if (strcmp(name, "inline") == 0) {
        set_inline(o, cache_bytes / 4);
    }
    return o;
}
