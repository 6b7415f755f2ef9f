#include "configs/deepspeed_keys.h"

namespace sluice::configs {
namespace {

constexpr auto kNone = DeepspeedRule::no_effect;
constexpr auto kOff = DeepspeedRule::must_be_off;
constexpr auto kMust = DeepspeedRule::must_be;

constexpr const char* kMetrics = "times, losses and bytes of every step go to metrics.jsonl in run.dir";
constexpr const char* kCollectives =
    "gathers and reductions are operations of the plan: they run beside computation, a block at a time";
constexpr const char* kGradientSum =
    "gradients are scaled by the trained tokens of the global batch before they are summed, in fp32";
constexpr const char* kBuffers =
    "memory.host and execution.pools size the host buffers, which are always pinned";
constexpr const char* kPrefetch =
    "what is on the device follows from execution.device_slots, execution.resident_blocks, execution.keep_weights and memory.gpu";
constexpr const char* kStored =
    "the run's store and `sluice export` take the place of DeepSpeed's checkpoints";
constexpr const char* kOverlap = "disk, copies and optimizer always overlap, tile by tile";
constexpr const char* kQueue = "the disk queue is set by aio.block_size and aio.queue_depth alone";
constexpr const char* kInternal = "it steers DeepSpeed's own machinery";
constexpr const char* kApproximate = "it changes the result and is not built";

constexpr DeepspeedKey kKeys[] = {
    {"steps_per_print", kNone, "run.log_every sets how often a line is printed"},
    {"wall_clock_breakdown", kNone, kMetrics},
    {"memory_breakdown", kNone, kMetrics},
    {"timers", kNone, kMetrics},
    {"comms_logger", kNone, kMetrics},
    {"tensorboard", kNone, kMetrics},
    {"csv_monitor", kNone, kMetrics},
    {"wandb", kNone, kMetrics},
    {"comet", kNone, kMetrics},
    {"flops_profiler", kNone, kMetrics},
    {"log_level", kNone, kInternal},
    {"dump_state", kNone, "`sluice config` prints every value"},
    {"managed_gradient_accumulation", kNone, kInternal},
    {"dataloader_drop_last", kNone, "samples are packed; there is no last short batch"},
    {"sparse_gradients", kNone, "embedding gradients are dense"},
    {"disable_allgather", kNone, kCollectives},
    {"vocabulary_size", kNone, "the model's config.json says it"},
    {"prescale_gradients", kNone, kGradientSum},
    {"gradient_predivide_factor", kNone, kGradientSum},
    {"gradient_allreduce_op", kNone, kGradientSum},
    {"seq_parallel_communication_data_type", kNone, kCollectives},
    {"zero_allow_untested_optimizer", kNone, kInternal},
    {"zero_force_ds_cpu_optimizer", kNone, kInternal},
    {"data_types", kNone, "gradients are always summed in fp32 and rounded once, to communication_data_type"},
    {"autotuning", kOff, "tuning is not built"},
    {"activation_checkpointing", kNone,
     "each layer keeps only its input; execution.keep_graphs says which are not computed again"},
    {"checkpoint", kNone, kStored},
    {"compile", kNone, kInternal},
    {"amp", kOff, "mixed precision by apex is not built; bf16 and fp16 are"},
    {"torch_autocast", kOff, "autocast is not built; bf16 and fp16 are"},
    {"elasticity", kOff, "it changes the batch size and is not built"},
    {"curriculum_learning", kOff, kApproximate},
    {"data_efficiency", kOff, kApproximate},
    {"compression_training", kOff, kApproximate},
    {"progressive_layer_drop", kOff, kApproximate},
    {"quantize_training", kOff, kApproximate},
    {"sparse_attention", kOff, kApproximate},
    {"tensor_parallel", kOff, "tensor parallelism is not built"},
    {"pipeline", kNone, "there are no pipeline stages"},

    {"bf16.immediate_grad_update", kNone, kInternal},
    {"bf16.check_grad_overflow", kNone, "gradients are always checked; run.on_nonfinite says what follows"},
    {"bf16.bf16_master_weights_and_grads", kOff, "the master weights are exact fp32"},
    {"bf16.bf16_optimizer_states", kOff, "the moments are fp32"},
    {"fp16.auto_cast", kNone, "a model's inputs are token ids"},
    {"fp16.fp16_master_weights_and_grads", kOff, "the master weights are exact fp32"},

    {"optimizer.legacy_fusion", kNone, kInternal},
    {"optimizer.params.torch_adam", kNone, "there is one kernel, exact on every machine"},
    {"optimizer.params.fp32_optimizer_states", kMust, "the moments are fp32", "true"},
    {"optimizer.params.amsgrad", kOff, "amsgrad is not built"},
    {"optimizer.params.max_grad_norm", kMust, "DeepSpeed refuses it too; give gradient_clipping", "0"},
    {"scheduler.params.last_batch_iteration", kMust, "a run begins at step 0 and resumes where it was", "-1"},

    {"zero_optimization.contiguous_gradients", kNone, "gradients of a block are always contiguous"},
    {"zero_optimization.reduce_scatter", kNone, "stages 1 to 3 always reduce into shards; stage 0 gathers the sums besides"},
    {"zero_optimization.allgather_partitions", kNone, "updated shards are always gathered, a block at a time"},
    {"zero_optimization.allgather_bucket_size", kNone, "a gather goes straight into its place and needs no bucket"},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kNone, kCollectives},
    {"zero_optimization.overlap_comm", kNone, "collectives always run beside computation, as the plan orders them"},
    {"zero_optimization.round_robin_gradients", kNone, kCollectives},
    {"zero_optimization.sub_group_size", kNone, "the optimizer works on tiles of storage.tile parameters"},
    {"zero_optimization.stage3_prefetch_bucket_size", kNone, kPrefetch},
    {"zero_optimization.stage3_param_persistence_threshold", kNone, kPrefetch},
    {"zero_optimization.stage3_model_persistence_threshold", kNone, kPrefetch},
    {"zero_optimization.stage3_max_live_parameters", kNone, kPrefetch},
    {"zero_optimization.stage3_max_reuse_distance", kNone, kPrefetch},
    {"zero_optimization.stage3_module_granularity_threshold", kNone, kPrefetch},
    {"zero_optimization.leaf_module", kNone, kPrefetch},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNone, kStored},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNone, kStored},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kNone, kCollectives},
    {"zero_optimization.stage3_allgather_sequential", kNone, kCollectives},
    {"zero_optimization.load_from_fp32_weights", kNone, kStored},
    {"zero_optimization.elastic_checkpoint", kNone, kStored},
    {"zero_optimization.pipeline_loading_checkpoint", kNone, kStored},
    {"zero_optimization.ignore_unused_parameters", kNone, kInternal},
    {"zero_optimization.legacy_stage1", kNone, kInternal},
    {"zero_optimization.enable_sanity_checks", kNone, kInternal},
    {"zero_optimization.log_trace_cache_warnings", kNone, kInternal},
    {"zero_optimization.memory_efficient_linear", kNone, kInternal},
    {"zero_optimization.override_module_apply", kNone, kInternal},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kNone, kInternal},
    {"zero_optimization.cpu_offload_use_pin_memory", kNone, kBuffers},
    {"zero_optimization.zero_hpz_partition_size", kNone, kCollectives},
    {"zero_optimization.mics_shard_size", kNone, kCollectives},
    {"zero_optimization.mics_hierarchical_params_gather", kNone, kCollectives},
    {"zero_optimization.zero_quantized_weights", kOff, kApproximate},
    {"zero_optimization.zero_quantized_nontrainable_weights", kOff, kApproximate},
    {"zero_optimization.zero_quantized_gradients", kOff, kApproximate},
    {"zero_optimization.zeropp_loco_param", kOff, kApproximate},
    {"zero_optimization.zenflow", kOff, kApproximate},

    {"zero_optimization.offload_param.buffer_count", kNone, kBuffers},
    {"zero_optimization.offload_param.buffer_size", kNone, kBuffers},
    {"zero_optimization.offload_param.max_in_cpu", kNone, kBuffers},
    {"zero_optimization.offload_param.pin_memory", kNone, kBuffers},
    {"zero_optimization.offload_optimizer.buffer_count", kNone, kBuffers},
    {"zero_optimization.offload_optimizer.pin_memory", kNone, kBuffers},
    {"zero_optimization.offload_optimizer.pipeline", kNone, kOverlap},
    {"zero_optimization.offload_optimizer.pipeline_read", kNone, kOverlap},
    {"zero_optimization.offload_optimizer.pipeline_write", kNone, kOverlap},
    {"zero_optimization.offload_optimizer.fast_init", kNone, "moments of zero are never written"},
    {"zero_optimization.offload_optimizer.ratio", kMust,
     "execution.resident_blocks splits the optimizer between device and CPU, by blocks", "1"},
    {"zero_optimization.offload_optimizer.super_offload", kOff, "SuperOffload is not built"},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", kNone,
     "execution.optimizer_threads sets the threads"},

    {"aio.intra_op_parallelism", kNone, kQueue},
    {"aio.thread_count", kNone, kQueue},
    {"aio.num_threads", kNone, kQueue},
    {"aio.single_submit", kNone, kQueue},
    {"aio.overlap_events", kNone, kQueue},
    {"aio.use_gds", kNone, "disk reads go through host memory"},
};

}  // namespace

const DeepspeedKey* find_deepspeed_key(std::string_view path) {
  for (const DeepspeedKey& key : kKeys) {
    if (!path.starts_with(key.path)) continue;
    if (path.size() == key.path.size() || path[key.path.size()] == '.') return &key;
  }
  return nullptr;
}

std::vector<std::string_view> deepspeed_key_names() {
  std::vector<std::string_view> names;
  for (const DeepspeedKey& key : kKeys) names.push_back(key.path);
  return names;
}

}  // namespace sluice::configs
