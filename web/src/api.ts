// Made by docs/web_types.py from the service's own tables. Change those, not this file.
/** The outcome for one task of several, or the outcome that a dry run predicts. */
export interface ActOutcome {
  task_id: string;
  verdict: Verdict | null;
  state: Status | null;
  generation: number | null;
  superseded: Holder | null;
  error: string | null;
  why: string;
}
/** Which agent has worked on which task, by claims. */
export interface Activity {
  spans: (ClaimSpan)[];
  since: string;
  until: string;
  known_since: string;
  left_out: number;
  cursor: string;
  now: string;
}
/** The outcomes of a command on several tasks, or those that a dry run predicts. */
export interface ActsResult {
  act: string;
  dry_run: boolean;
  matched: number;
  done: number;
  unchanged: number;
  refused: number;
  outcomes: (ActOutcome)[];
  others: (string)[];
}
/** The outcome for one added or edited task. */
export interface AddResult {
  verdict: Verdict;
  task_id: string;
  state: Status;
  changed: (string)[];
}
export interface AddTasks {
  tasks: (string | { id: TaskId })[];
}
export interface AdoptResult {
  refused_id: string;
  session_id?: string | null;
  generation?: number | null;
  take_over?: boolean;
  operation_id?: string | null;
}
/** An agent of a session, and its status. */
export interface AgentInfo {
  agent_id: string;
  session_id: string;
  status: AgentStatus;
  tasks: (string)[];
  current_task: string | null;
  tasks_completed: number | null;
  started: string | null;
  last_heartbeat: string | null;
  user_id: string;
  instance_type: string;
  workspace: string;
  worktree: string;
}
/** A project's table of roles. */
export interface AgentRoles {
  roles?: Record<string, (string)[]>;
  edges?: Record<string, EdgeRule>;
}
/** The status of an agent, in TD's words, and `lost`, for which TD has no word. */
export type AgentStatus = "idle" | "lost" | "starting" | "stopping" | "waiting" | "working";
/** The answer to a claim's heartbeat. */
export interface ApiBeaten {
  success: boolean;
  claim: ApiBeatenClaim;
}
/** A claim that goes on. */
export interface ApiBeatenClaim {
  expiresAt: string | null;
  lastHeartbeat: string;
  heartbeatCount: number;
}
/** A session wants a task. */
export interface ApiClaimRequest {
  sessionId: string;
  ttlMs: number | null;
  agentType: string;
  agentRole: string;
}
/** The answer to a claim. */
export interface ApiClaimed {
  success: boolean;
  claim: ApiGrantedClaim;
  alreadyHeld: boolean;
}
/** A claim that was found lost. */
export interface ApiCleaned {
  taskId: string;
  sessionId: string;
  reason: string;
}
/** What was found lost. */
export interface ApiCleanup {
  success: boolean;
  cleaned: (ApiCleaned)[];
  count: number;
}
/** When the claim began, and how long its lease still lasts. */
export interface ApiCurrentClaim {
  claimedAt: string;
  lastHeartbeat: string;
  remainingMs: number | null;
}
/** What a session works on. */
export interface ApiCurrentTask {
  taskId: string;
  title: string;
  claim: ApiCurrentClaim;
}
/** A task that somebody works on. */
export interface ApiFlying {
  taskId: string;
  task: ApiTaskWords;
  claim: ApiFlyingClaim;
}
/** A claim as others see it. */
export interface ApiFlyingClaim {
  sessionId: string;
  claimedAt: string;
  expiresAt: string | null;
  lastHeartbeat: string;
  agentType: string;
  healthStatus: string;
  generation: number;
}
/** A claim that was granted; `generation` is its fencing token. */
export interface ApiGrantedClaim {
  taskId: string;
  sessionId: string;
  claimedAt: string;
  expiresAt: string | null;
  lastHeartbeat: string;
  generation: number;
}
/** A session still works on a task. */
export interface ApiHeartbeatRequest {
  contextPercent: number | null;
  score: number | null;
  phase: string | null;
  sessionId: string;
  extendMs: number | null;
  generation: number | null;
}
/** All that is worked on. */
export interface ApiInFlight {
  inFlight: (ApiFlying)[];
  summary: ApiInFlightSummary;
}
/** How many there are. */
export interface ApiInFlightSummary {
  total: number;
  bySession: Record<string, number>;
}
/** A task that an agent might take. */
export interface ApiOffer {
  taskId: string;
  title: string;
  priority: string;
  track: string;
  feature: string;
  edge: string;
}
/** Whose claim is in the way. */
export interface ApiOtherClaim {
  sessionId: string;
  claimedAt: string;
  remainingMs: number | null;
  lastHeartbeat: string;
}
/** A claim that is over. */
export interface ApiPastClaim {
  taskId: string;
  claimedAt: string;
  releasedAt: string;
  releaseReason: string;
  canonicalReason: string;
  duration: number;
}
/** DDB's status: `healthy`, or `degraded` while some holder is silent. */
export interface ApiProjectHealth {
  status: string;
  version: string;
  tasks: Record<string, number>;
  claims: number;
  staleClaims: (ApiStaleClaim)[];
}
/** Every refusal and error. */
export interface ApiRefused {
  success: boolean;
  error: string;
  message: string;
  reason: string;
  claim: ApiOtherClaim;
}
/** A session gives a task back, or is done with it (`completed`). */
export interface ApiReleaseRequest {
  sessionId: string;
  reason: string;
  generation: number | null;
}
/** The answer to a release. */
export interface ApiReleased {
  success: boolean;
  released: ApiReleasedClaim;
}
/** A claim that is over. */
export interface ApiReleasedClaim {
  taskId: string;
  reason: string;
  claimDuration: number;
}
/** The answer to a session's heartbeat. */
export interface ApiSessionBeaten {
  success: boolean;
  sessionId: string;
  lastActivity: string;
}
/** A session in short; what is not known of it is left out. */
export interface ApiSessionCard {
  sessionId: string;
  active: boolean;
  lastActivity: string;
  currentTaskId: string | null;
  currentTaskClaimedAt: string | null;
  claimHistory: (ApiPastClaim)[];
  tasksCompleted: number;
  tasksTotal: number;
  agentType: string;
  contextPercent: unknown;
  score: unknown;
  phase: unknown;
}
/** A session lives, whatever it holds. */
export interface ApiSessionHeartbeatRequest {
  contextPercent: number | null;
  score: number | null;
  phase: string | null;
}
/** The answer about one session. */
export interface ApiSessionTask {
  sessionId: string;
  currentTask: ApiCurrentTask | null;
}
/** DDB: silent for longer than the policy's `stale_threshold_seconds`; shown, not released. */
export interface ApiStaleClaim {
  taskId: string;
  sessionId: string;
  agentId: string;
  claimedAt: string;
  lastActive: string;
  silentMs: number;
}
/** DDB's routing answer. Nothing is claimed by it. */
export interface ApiStart {
  agentId: string;
  agentRole: string;
  next: ApiOffer | null;
  alternatives: (ApiOffer)[];
  warnings: (string)[];
}
/** An agent asks what it should take. */
export interface ApiStartRequest {
  agentId: string;
  agentRole: string;
  tracks: (string)[] | null;
}
/** Claims in numbers. */
export interface ApiStats {
  total: number;
  bySession: Record<string, number>;
  byHealth: Record<string, number>;
  oldestMs: number | null;
}
/** All sessions that have not ended. */
export interface ApiSummary {
  sessions: (ApiSessionCard)[];
  total: number;
}
/** A task in short. */
export interface ApiTaskWords {
  title: string;
  phase: string;
  priority: string;
}
export interface ApproveReview {
  generation: number;
  digest: string;
}
export interface AssignTask {
  agent_id: string;
  hours?: number | null;
  take_over?: boolean;
  operation_id?: string | null;
}
export interface BatchAct {
  act: "release" | "hold" | "reopen" | "reset" | "cancel";
  task_ids?: (string)[] | null;
  states?: "BACKLOG" | "PENDING" | "BLOCKED" | "IN_PROGRESS" | "IN_REVIEW" | "COMPLETED" | "CANCELLED" | "HELD" | ("BACKLOG" | "PENDING" | "BLOCKED" | "IN_PROGRESS" | "IN_REVIEW" | "COMPLETED" | "CANCELLED" | "HELD")[] | null;
  tracks?: string | (string)[] | null;
  agent_id?: string | null;
  session_id?: string | null;
  tag?: string | null;
  text?: string;
  reason?: string;
  take_over?: boolean;
  dry_run?: boolean;
  limit?: number;
  operation_id?: string | null;
}
export interface BatchClaim {
  task_ids: (string)[];
  agent_id?: string | null;
  session_id?: string | null;
  lease_duration_seconds?: number | string;
  operation_id?: string | null;
  agent_role?: string;
}
export interface BatchGetStates {
  task_ids: (string)[];
}
export interface BatchRenew {
  generations: Record<string, number>;
  session_id?: string | null;
}
export interface BatchSubmit {
  results: ({ task_id: string; generation: number; result_data: unknown; work_product_ref: string; operation_id: string | null; agent_id: string | null; products: ({ path: string; sha256: string; size: number })[] })[];
  session_id?: string | null;
}
/** One line of `blocked`. */
export interface BlockedTask {
  task: Task;
  blocked_by: (string)[];
}
export interface CancelTask {
  reason?: string;
  take_over?: boolean;
  operation_id?: string | null;
}
/** A task that a session holds. */
export interface CardTask {
  task_id: string;
  title: string;
  agent_id: string;
  generation: number;
  claimed_at: string;
  expires_at: string | null;
  lease_seconds: number;
  health: HolderHealth;
  why: string;
  fraction: number | null;
  note: string;
}
export interface CheckPlan {
  source: Record<string, unknown> | string | ([string, string])[];
}
/** The history of one generation (GC 4.2.1). */
export interface ClaimHistory {
  id: string;
  tenant_id: string;
  project_id: string;
  task_id: string;
  track: string | null;
  sequence: number | null;
  generation: number;
  session_id: string;
  agent_id: string;
  user_id: string;
  acquired_at: string;
  released_at: string | null;
  release_reason: ReleaseReason | null;
  stated_reason: string;
  result_accepted: boolean;
  result_rejected: boolean;
  work_product_ref: string | null;
  renewals: number;
  fraction: number | null;
  note: string;
  cost: Record<string, number>;
  reference: string;
}
export interface ClaimNext {
  agent_id?: string | null;
  session_id?: string | null;
  lease_duration_seconds?: number | string | null;
  tracks?: string | (string)[] | null;
  wait_seconds?: number | string;
  operation_id?: string | null;
  agent_role?: string;
}
/** The answer to a claim. */
export type ClaimReason = "DENIED_ACTIVE_CLAIM" | "DENIED_ASSIGNED" | "DENIED_BLOCKED" | "DENIED_COMPLETED" | "DENIED_HELD" | "DENIED_LIMIT" | "DENIED_ROLE" | "GRANTED" | "NOTHING_READY";
/** A claim of a session in brief. */
export interface ClaimRef {
  task_id: string;
  generation: number;
  expires_at: string | null;
}
/** The answer to a claim. A denial names the holder of the task or the tasks that it waits for. */
export interface ClaimResult {
  success: boolean;
  reason: ClaimReason;
  task_id: string | null;
  claim: TaskClaim | null;
  task: Task | null;
  current_holder: string | null;
  holder: Holder | null;
  waits_for: (string)[];
  limit: string | null;
  detail: string;
  inputs_changed: (string)[];
  already_held: boolean;
  held: (ClaimRef)[];
  attempt: number;
  feedback: Feedback | null;
  roles: (string)[];
  overlaps: (Overlap)[];
  unfinished: Record<string, number>;
}
/** A refusal: the answer, and a problem's members. */
export type ClaimResultRefused = ClaimResult & { type: string; title: string; status: number; detail: string; message: string; try_next: ((string)[])[] };
/** A claim from its grant to its end. */
export interface ClaimSpan {
  agent_id: string;
  session_id: string;
  task_id: string;
  generation: number;
  start: string | null;
  end: string | null;
  ended: ReleaseReason | null;
  health: HolderHealth | null;
  user_id: string;
  track: string | null;
}
/** The states of a claim. */
export type ClaimState = "ACTIVE" | "EXPIRED" | "RELEASED" | "SUPERSEDED";
export interface ClaimTask {
  agent_id?: string | null;
  session_id?: string | null;
  lease_duration_seconds?: number | string;
  operation_id?: string | null;
  agent_role?: string;
  metadata?: Record<string, unknown> | null;
}
export interface CreateKey {
  name: string;
  role: "observer" | "agent" | "operator" | "admin";
  projects?: string;
  session_id?: string | null;
  expires_in_seconds?: number | string | null;
  expires_at?: string | null;
  agent_roles?: (string)[] | null;
}
export interface DiffPlan {
  source: Record<string, unknown> | string | ([string, string])[];
  prune?: boolean;
}
export interface DiscardResult {
  refused_id: string;
}
/** The requirements, besides a role, that a result of an edge must meet before it counts. */
export interface EdgeRule {
  human_required: boolean;
  evaluators: (string)[];
}
export interface EditTask {
  changes: Record<string, unknown>;
  operation_id?: string | null;
}
export interface EndSession {
}
/** The verdict of one evaluator. */
export interface Evaluation {
  passed: boolean;
  at: string;
  by?: string;
  note?: string;
}
/** Events of a project, the newest first. */
export interface EventPage {
  events: (FeedEvent)[];
  sentences: (string)[];
  next: string | null;
  cursor: string;
}
/** Why a task is not ready, or why this agent would not get it, and what would change that. */
export interface Explanation {
  task_id: string;
  state: Status;
  ready: boolean;
  reason: ClaimReason;
  because: (string)[];
  try_next: ((string)[])[];
  waits_for: (string)[];
  cycle: (string)[];
  holder: Holder | null;
  roots: (Root)[];
  own_generation: number | null;
}
/** An entry of a batch that is an error. */
export interface Failed {
  error: Problem;
}
/** One fault of a plan and its position. `task` is the id of the faulty task, if it has one. */
export interface Fault {
  file: string | null;
  line: number | null;
  column: number | null;
  task: string | null;
  message: string;
}
/** A page of the feed. */
export interface Feed {
  events: (FeedEvent)[];
  cursor: string;
  more: boolean;
}
/** One event of a project's feed. `cursor` continues after it; `kind` and `id` name its record. */
export interface FeedEvent {
  position: number;
  cursor: string;
  kind: string;
  id: string;
  event_type: string;
  event: Record<string, unknown>;
}
/** The reason why the last review did not accept the result, for the next holder. */
export interface Feedback {
  at: string;
  generation: number;
  by: string;
  digest: string;
  text?: string;
  refused_id?: string;
}
export interface ForceRelease {
  take_over?: boolean;
  operation_id?: string | null;
}
/** Tasks in the order of their dependencies, and the cycles among them. */
export interface Graph {
  tasks: (GraphTask)[];
  cycles: ((string)[])[];
  around: string | null;
}
/** A dependency: `target` waits for `source`, or has waited for it. */
export interface GraphEdge {
  source: string;
  target: string;
  met: boolean;
  count: number;
  bends: ([number, number])[];
}
/** A graph with the position of each box. */
export interface GraphLayout {
  nodes: (GraphNode)[];
  edges: (GraphEdge)[];
  width: number;
  height: number;
  folded: boolean;
  total: number;
  left_out: Record<string, number>;
  around: string | null;
  cursor: string;
  now: string;
}
/** A box: a task, or all tasks of a track. */
export interface GraphNode {
  id: string;
  kind: string;
  title: string;
  track: string | null;
  x: number;
  y: number;
  state: Status | null;
  generation: number;
  agent_id: string | null;
  distance: number;
  total: number;
  states: Record<string, number>;
}
/** A task as a node. `waits_for` has its unfinished dependencies and children. */
export interface GraphTask {
  id: string;
  title: string;
  track: string | null;
  state: Status;
  generation: number;
  agent: string | null;
  parent: string | null;
  depends_on: (string)[];
  children: (string)[];
  waits_for: (string)[];
  distance: number;
}
export interface HeartbeatSession {
  metadata?: Record<string, unknown> | null;
}
export interface HoldTask {
  reason?: string;
  operation_id?: string | null;
}
/** The holder of a task, as shown to other sessions. */
export interface Holder {
  agent: string;
  session: string;
  user: string;
  claimed_at: string;
  expires_at: string | null;
  looks_alive: boolean;
}
/** The health of a task's holder, from best to worst. */
export type HolderHealth = "ENDED" | "GONE" | "OVERDUE" | "SILENT" | "STALE" | "WORKING";
export interface ImportPlan {
  source: Record<string, unknown> | string | ([string, string])[];
  prune?: boolean;
}
/** The way in which a worker isolates its files from those of others. */
export type Isolation = "container" | "none" | "worktree";
/** A key in a list: its permissions, its owner and its end. Nothing here helps to use it. */
export interface KeyInfo {
  key_id: string;
  name: string;
  tenant_id: string;
  projects: string;
  role: Role;
  session_id: string | null;
  state: KeyState;
  created_at: string;
  created_by: string;
  updated_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  previous_until: string | null;
  agent_roles: (string)[];
}
/** The states of a key. */
export type KeyState = "ACTIVE" | "EXPIRED" | "REVOKED";
/** GC 9.2: the generations of a task and the submissions refused along the way. */
export interface Lineage {
  task_id: string;
  generations: (ClaimHistory)[];
  refused: (TaskResult)[];
}
/** The products of one result, and the place of their drafts. */
export interface Manifest {
  agent: string;
  generation: number;
  files: (Product)[];
}
/** The counts of events within one minute. */
export interface MinuteCounts {
  at: string;
  claims: number;
  completions: number;
  refusals: number;
  denials: number;
}
/** A task or result that makes no progress without a person. */
export interface Need {
  kind: NeedKind;
  task_id: string;
  title: string;
  state: Status;
  generation: number;
  since: string;
  why: string;
  waited_for_by: number;
  agent_id: string | null;
  session_id: string | null;
  refused_id: string | null;
  size: number | null;
  acts: (string)[];
  command: (string)[];
}
/** The reason why a task or a result needs a person, the most urgent first. */
export type NeedKind = "CYCLE" | "HELD" | "IN_BACKLOG" | "IN_REVIEW" | "LOST_HOLDER" | "NOT_TAKEN_OVER" | "OVERDUE" | "REFUSED_RESULT" | "WAITS_FOR_PERSON";
/** A key that was created or rotated, with its text. No store and no other answer has the text. */
export interface NewKey {
  key: KeyInfo;
  text: string;
}
export interface NextId {
  parent?: string | null;
  count?: number;
}
/** The answer that a request for a next task would get. Nothing is claimed. */
export interface NextPreview {
  reason: ClaimReason;
  task: Task | null;
  because: (string)[];
  overlaps: (Overlap)[];
}
/** The answer to an operator's command: the state and generation after it. */
export interface OperatorResult {
  verdict: Verdict;
  task_id: string;
  state: Status;
  generation: number;
  superseded: Holder | null;
  cascade: (string)[];
}
/** A task in flight that shares modules with another one. */
export interface Overlap {
  task_id: string;
  modules: (string)[];
}
/** A project at a glance. */
export interface Overview {
  tenant_id: string;
  project_id: string;
  now: string;
  cursor: string;
  total: number;
  states: Record<string, number>;
  tracks: (TrackCounts)[];
  claims: number;
  refused_results: number;
  needs: (Need)[];
  needs_counts: Record<string, number>;
  rates: Rates;
  sessions: (SessionCard)[];
  sessions_count: number;
  next_up: (TaskRow)[];
  refusals: (Refusal)[];
}
/** The changes made by the import of a plan. */
export interface PlanResult {
  added: (string)[];
  changed: (string)[];
  unchanged: (string)[];
  gone: (string)[];
  cancelled: (string)[];
  fields: Record<string, (string)[]>;
  still_cancelled: (string)[];
  notes: (Fault)[];
  prunable: (string)[];
}
/** An error in its wire form. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  message: string;
  try_next: ((string)[])[];
  request: string;
  faults: (string | Fault)[] | null;
  notes: (string | Fault)[];
  retry_after_seconds: number | null;
}
/** Which process a session is: a pid alone may be reused, with its start time it is not. */
export interface Process {
  host: string;
  boot: string;
  pid: number;
  started: number;
  namespace?: string;
}
/** A file that was made for a task, by its content. */
export interface Product {
  path: string;
  sha256: string;
  size: number;
}
/** The progress of a track. */
export interface Progress {
  completed: number;
  in_progress: number;
  pending: number;
  blocked: number;
  other: number;
}
/** A worker's note about its work, for operators and for the next holders. */
export interface ProgressNote {
  at: string;
  generation: number;
  agent: string;
  text: string;
  fraction?: number | null;
}
/** The answer to a report of progress. */
export type ProgressReason = "ALREADY_EXPIRED" | "GENERATION_MISMATCH" | "NO_CLAIM" | "RECORDED" | "SESSION_MISMATCH";
/** The answer to a report of progress. */
export interface ProgressResult {
  success: boolean;
  reason: ProgressReason;
  generation: number;
}
/** A refusal: the answer, and a problem's members. */
export type ProgressResultRefused = ProgressResult & { type: string; title: string; status: number; detail: string; message: string; try_next: ((string)[])[] };
/** The products of an accepted result, and the state of their promotion. */
export interface PromotionInfo {
  task_id: string;
  generation: number;
  state: PromotionState;
  manifest: Manifest;
  digest: string;
  accepted_at: string;
  updated_at: string;
  reason: string;
  superseded: (string)[];
}
/** The states of a promotion of an accepted result's products. */
export type PromotionState = "FAILED" | "PENDING" | "PROMOTED";
/** The answer to a git repository that asks whether to accept a push. */
export type PushReason = "ALLOWED" | "CLAIM_OVERDUE" | "FROZEN" | "FUTURE_GENERATION" | "NOT_ACCEPTED" | "NO_CLAIM" | "STALE_GENERATION" | "UNKNOWN_TASK";
/** May a git repository take this commit? */
export interface PushVerdict {
  allowed: boolean;
  reason: PushReason;
  task_id: string;
  generation: number;
  current_generation: number;
  state: Status;
  commit: string;
  held_by: string;
}
/** The recent activity. The figures are per minute, over `seconds`. */
export interface Rates {
  claims: number;
  completions: number;
  refusals: number;
  denials: number;
  seconds: number;
  since: string;
  minutes: (MinuteCounts)[];
}
/** One line of `ready`. */
export interface ReadyTask {
  task: Task;
  state: Status;
  generation: number;
}
/** A refused result: a session submitted it after its claim was over. */
export interface Refusal {
  refused_id: string;
  task_id: string;
  at: string;
  agent_id: string;
  session_id: string;
  generation: number;
  current_generation: number;
  reason: string;
  why: string;
  size: number;
  state: RefusedState;
}
/** The states of a refused result. */
export type RefusedState = "ADOPTED" | "DISCARDED" | "KEPT";
export interface RegisterSession {
  session_id?: string | null;
  user_id?: string | null;
  agent_type?: string;
  process?: Process | null;
  metadata?: Record<string, unknown> | null;
}
export interface RejectReview {
  generation: number;
  digest: string;
  feedback?: string;
}
/** The answer to a release. */
export type ReleaseAnswer = "GENERATION_MISMATCH" | "NO_CLAIM" | "RELEASED" | "SESSION_MISMATCH";
export interface ReleaseClaim {
  generation?: number | null;
  expected_generation?: number | null;
  session_id?: string | null;
  reason?: string;
  note?: string;
  operation_id?: string | null;
}
/** The ways in which a claim ends. */
export type ReleaseReason = "COMPLETED" | "ERROR" | "EXPIRED" | "ORPHANED" | "SPAWNED" | "SUPERSEDED" | "VOLUNTARY";
/** The answer to a release. */
export interface ReleaseResult {
  success: boolean;
  reason: ReleaseAnswer;
  generation: number;
}
/** A refusal: the answer, and a problem's members. */
export type ReleaseResultRefused = ReleaseResult & { type: string; title: string; status: number; detail: string; message: string; try_next: ((string)[])[] };
export interface RenewLease {
  generation?: number | null;
  expected_generation?: number | null;
  session_id?: string | null;
  lease_duration_seconds?: number | string | null;
}
/** The answer to a renewal. */
export type RenewReason = "ALREADY_EXPIRED" | "GENERATION_MISMATCH" | "NO_CLAIM" | "RENEWED" | "SESSION_MISMATCH";
/** The answer to a renewal. */
export interface RenewalResult {
  success: boolean;
  reason: RenewReason;
  generation: number;
  new_expiry: string | null;
  inputs_changed: (string)[];
  lease_seconds: number | null;
}
/** A refusal: the answer, and a problem's members. */
export type RenewalResultRefused = RenewalResult & { type: string; title: string; status: number; detail: string; message: string; try_next: ((string)[])[] };
export interface ReopenTask {
  operation_id?: string | null;
}
export interface ReportEvaluation {
  generation: number;
  digest: string;
  evaluator: string;
  passed: boolean;
  note?: string;
  session_id?: string | null;
  agent_id?: string | null;
}
export interface ReportProgress {
  generation: number;
  fraction?: number | null;
  note?: string;
  cost?: Record<string, number> | null;
  worktree_path?: string | null;
  session_id?: string | null;
  agent_id?: string | null;
}
export interface ResetTask {
  cascade?: boolean;
  take_over?: boolean;
  operation_id?: string | null;
}
/** The reason why a result waits for a review. */
export type ReviewCause = "EVALUATORS" | "HUMAN_REQUIRED" | "OUTSIDE_ROLE";
/** A result that waits for a review. */
export interface ReviewInfo {
  task_id: string;
  title: string;
  edge: string | null;
  generation: number;
  digest: string;
  causes: (ReviewCause)[];
  session_id: string;
  agent_id: string;
  user_id: string;
  agent_role: string;
  submitted_at: string;
  work_product_ref: string;
  size: number;
  payload: boolean;
  missing_evaluators: (string)[];
  evaluations: Record<string, Evaluation>;
  inputs_changed: (string)[];
  result_data: unknown;
  reference: string;
  manifest: Manifest | null;
}
/** The answer to a reviewer or an evaluator. */
export type ReviewReason = "APPROVED" | "CHILDREN_UNFINISHED" | "EVALUATED" | "FOUR_EYES" | "REJECTED" | "STALE_REVIEW";
/** The answer to an approval, a rejection or an evaluation: the task after it. */
export interface ReviewResult {
  success: boolean;
  reason: ReviewReason;
  task_id: string;
  state: Status;
  generation: number;
  digest: string;
  reviewer: string;
  author: string;
  refused_id: string | null;
  waits_for: (string)[];
  missing_evaluators: (string)[];
}
/** A refusal: the answer, and a problem's members. */
export type ReviewResultRefused = ReviewResult & { type: string; title: string; status: number; detail: string; message: string; try_next: ((string)[])[] };
export interface RevokeKey {
}
/** The role of a key. Each has the permissions of the one before it, and more. */
export type Role = "admin" | "agent" | "observer" | "operator";
/** A root of a task's waiting: a task that itself waits for no other. `state` is None if there is no such task. */
export interface Root {
  task_id: string;
  state: Status | null;
  because: string;
}
export interface RotateKey {
  overlap_seconds?: number | string;
  expires_in_seconds?: number | string | null;
  expires_at?: string | null;
}
/** The holder of a task, and its health. */
export interface RowHolder {
  agent_id: string;
  session_id: string;
  user_id: string;
  claimed_at: string;
  renewed_at: string;
  expires_at: string | null;
  lease_seconds: number;
  health: HolderHealth;
  why: string;
}
/** The last report of the work on a task. */
export interface RowProgress {
  generation: number;
  updated_at: string;
  fraction: number | null;
  note: string;
  score: number | null;
  context_percent: number | null;
  phase: string;
}
/** The result of a task that waits for a review. */
export interface RowReview {
  agent_id: string;
  session_id: string;
  generation: number;
  submitted_at: string;
  digest: string;
  size: number;
  causes: (ReviewCause)[];
  missing_evaluators: (string)[];
}
/** A session as a card of the dashboard. */
export interface SessionCard {
  session_id: string;
  agent_id: string;
  agent_type: string;
  user_id: string;
  host: string | null;
  pid: number | null;
  active: boolean;
  process_gone: boolean;
  health: HolderHealth | null;
  tasks: (CardTask)[];
  tasks_held: number;
  tasks_done: number;
  refused_results: number;
  score: number | null;
  context_percent: number | null;
  phase: string;
  created_at: string;
  last_sign: string;
  metadata: Record<string, unknown>;
}
/** The answer to the end of a session: the claims it released. */
export interface SessionEnd {
  session_id: string;
  released: (string)[];
}
/** A session in a list. */
export interface SessionInfo {
  session_id: string;
  tenant_id: string;
  project_id: string;
  user_id: string;
  agent_type: string;
  created_at: string;
  last_activity: string;
  ended_at: string | null;
  active: boolean;
  host: string | null;
  pid: number | null;
  process_gone: boolean;
  claims: (ClaimRef)[];
  metadata: Record<string, unknown>;
}
/** GC 3.5: the tasks that a session has done and holds. */
export interface SessionMemory {
  session_id: string;
  tenant_id: string;
  project_id: string;
  user_id: string;
  created_at: string;
  last_activity: string;
  task_log: (TaskLogEntry)[];
  active_claims: (ClaimRef)[];
  completed_tasks: (string)[];
  track_assignments: Record<string, string>;
  track_progress: Record<string, Progress>;
}
export interface SetPolicy {
  policy?: { order: "closest-to-done" | "leaf-first" | "track"; ids: "auto" | "hierarchical"; expired: "grace" | "human" | "takeover"; grace_seconds: number; claim_ttl_seconds: number | null; stale_threshold_seconds: number; breaker_threshold: number; cancelled_dependency: "hold" | "met"; spawn_depth: number; offer_backlog: boolean; lock_timeout_hours: number; orphan_threshold_seconds: number; tracks: "prefer" | "strict"; agents_per_track: number | null; agents_on_track: Record<string, number>; track_order: "enforce" | "prefer"; overlap: "avoid" | "forbid" | "off" | "warn"; four_eyes: boolean; worktree_start: "base" | "predecessor"; products: string | null; draft_retention_days: number; agents: "fleet" | "single" } | null;
  tracks?: Record<string, string> | null;
  agent_roles?: Record<string, unknown> | null;
  profile?: "local" | "default" | "enterprise" | null;
  limits?: { max_concurrent_claims: number | null; max_lease_duration_seconds: number | null; min_lease_duration_seconds: number; max_generations_per_task: number | null; claim_history_retention_days: number | null; max_result_size_bytes: number; max_active_sessions: number | null } | null;
}
export interface SetTenant {
  profile?: "local" | "default" | "enterprise" | null;
  limits?: { max_concurrent_claims: number | null; max_lease_duration_seconds: number | null; min_lease_duration_seconds: number; max_generations_per_task: number | null; claim_history_retention_days: number | null; max_result_size_bytes: number; max_active_sessions: number | null } | null;
}
/** A project's policy with its limits and tracks. */
export interface Settings {
  policy: Record<string, unknown>;
  limits: Record<string, unknown>;
  profile: string;
  tracks: Record<string, string>;
  agent_roles: Record<string, unknown>;
  has_own_tracks: boolean;
}
export interface SettlePromotion {
  generation: number;
  digest: string;
  failure?: string;
  superseded?: (string)[];
}
/** The order in which spawned subtasks run. */
export type SpawnMode = "fan-out-fan-in" | "parallel" | "sequential";
/** The answer to a spawn: the same fence as a submission's. */
export interface SpawnResult {
  success: boolean;
  reason: SubmitReason;
  current_generation: number;
  children: (string)[];
}
/** A refusal: the answer, and a problem's members. */
export type SpawnResultRefused = SpawnResult & { type: string; title: string; status: number; detail: string; message: string; try_next: ((string)[])[] };
export interface SpawnSubtasks {
  generation?: number | null;
  subtasks: (string | { id: TaskId })[];
  mode?: "sequential" | "parallel" | "fan-out-fan-in";
  keep?: boolean;
  session_id?: string | null;
  agent_id?: string | null;
  operation_id?: string | null;
}
/** The states of a task. */
export type Status = "BACKLOG" | "BLOCKED" | "CANCELLED" | "COMPLETED" | "HELD" | "IN_PROGRESS" | "IN_REVIEW" | "PENDING";
/** The answer to a submission. A refused result with content is kept: see `list_refused_results`. */
export interface SubmissionResult {
  accepted: boolean;
  reason: SubmitReason;
  current_generation: number;
  work_lost: boolean;
  kept: boolean;
  work_product_ref: string | null;
  refused_id: string | null;
  waits_for: (string)[];
  review_causes: (ReviewCause)[];
}
/** A refusal: the answer, and a problem's members. */
export type SubmissionResultRefused = SubmissionResult & { type: string; title: string; status: number; detail: string; message: string; try_next: ((string)[])[] };
/** The answer to a submission, and to every other fenced act (spawn, adopt). */
export type SubmitReason = "ACCEPTED" | "CHILDREN_UNFINISHED" | "CONVERGENCE_ESCALATED" | "FUTURE_GENERATION" | "NO_CLAIM" | "SESSION_MISMATCH" | "STALE_GENERATION" | "TASK_ALREADY_COMPLETED";
export interface SubmitResult {
  generation: number;
  result_data?: unknown;
  session_id?: string | null;
  agent_id?: string | null;
  work_product_ref?: string;
  operation_id?: string | null;
  evaluations?: Record<string, boolean> | null;
  products?: ({ path: string; sha256: string; size: number })[] | null;
}
export interface Sweep {
}
/** The findings and changes of a sweep. */
export interface SweepResult {
  expired: number;
  orphaned: number;
  stale: number;
  settled: number;
  purged: number;
}
/** A task's definition: the union of what the five documents need. */
export interface Task {
  id: string;
  title?: string;
  description?: string;
  phase?: string;
  priority?: string;
  tags?: (string)[];
  track?: string | null;
  sequence?: number | null;
  feature?: string | null;
  edge?: string | null;
  parent?: string | null;
  depth?: number;
  depends_on?: (string)[];
  modules?: (string)[];
  repo?: string;
  roles?: (string)[];
  human_required?: boolean;
  estimate_seconds?: number | null;
  lease_seconds?: number | null;
  parallelizable?: boolean;
  isolation?: Isolation;
  worktree_path?: string;
  coordination_mode?: SpawnMode | null;
  assigned_to?: string | null;
  assigned_at?: string | null;
  waiting_for?: string;
  not_before?: string | null;
  spawned_from?: string | null;
  lock_timeout_hours?: number | null;
  metadata?: Record<string, unknown>;
}
/** A claim as its holder sees it. `generation` is the fencing token: every later write carries it. */
export interface TaskClaim {
  id: string;
  tenant_id: string;
  project_id: string;
  task_id: string;
  track: string | null;
  sequence: number | null;
  agent_id: string;
  generation: number;
  session_id: string;
  claimed_at: string;
  lease_seconds: number;
  expires_at: string | null;
  state: ClaimState;
  work_product_ref: string | null;
  agent_role: string;
  metadata: Record<string, unknown>;
}
/** A task: `B-003-dashboard`, `AUTH-LOGIN:design_code`, `0001_t1.1` or `any-name`; `::1` may follow. */
export type TaskId = string;
/** One line of a session's task log. */
export interface TaskLogEntry {
  timestamp: string;
  event: string;
  task_id: string;
  track: string | null;
  sequence: number | null;
  generation: number;
  agent_id: string;
  outcome: string | null;
  work_product_ref: string | null;
  details: Record<string, unknown>;
}
/** A page of a list of tasks. */
export interface TaskPage {
  tasks: (TaskRow)[];
  total: number;
  counts: Record<string, number>;
  next: string | null;
  cursor: string;
  now: string;
}
/** The reported progress of a task. */
export interface TaskProgress {
  generation: number;
  updated_at: string;
  fraction: number | null;
  cost: Record<string, number>;
  notes: (ProgressNote)[];
  worktree_path: string;
}
/** A submitted result, accepted or refused (GC 4.2.1). */
export interface TaskResult {
  id: string;
  tenant_id: string;
  project_id: string;
  task_id: string;
  track: string | null;
  sequence: number | null;
  generation: number;
  session_id: string;
  agent_id: string;
  work_product_ref: string;
  result_data: unknown;
  submitted_at: string;
  accepted: boolean;
  rejection_reason: string | null;
  digest: string;
  size: number;
  payload: boolean;
  state: RefusedState | null;
  adopted_generation: number | null;
  adopted_session: string | null;
  reference: string;
  manifest: Manifest | null;
}
/** A task as one row of a list. */
export interface TaskRow {
  id: string;
  title: string;
  state: Status;
  priority: string;
  track: string | null;
  sequence: number | null;
  phase: string;
  tags: (string)[];
  parent: string | null;
  generation: number;
  holder: RowHolder | null;
  attempts: number;
  failures: number;
  progress: RowProgress | null;
  waits_for: (string)[];
  waits_for_count: number;
  refused_results: number;
  inputs_changed: (string)[];
  hold_reason: string | null;
  hold_until: string | null;
  review: RowReview | null;
  feedback: string | null;
  assigned_to: string | null;
  human_required: boolean;
  done_by: string | null;
  created_at: string;
  updated_at: string;
}
/** The complete present state of a task. */
export interface TaskState {
  task: Task;
  state: Status;
  generation: number;
  claim: TaskClaim | null;
  holder: Holder | null;
  unmet_dependencies: (string)[];
  unfinished_children: (string)[];
  spawned_tasks: (string)[];
  result: TaskResult | null;
  refused_results: number;
  hold_reason: string | null;
  held_until: string | null;
  inputs_changed: (string)[];
  failures: number;
  progress: TaskProgress | null;
  review: ReviewInfo | null;
  feedback: Feedback | null;
  created_at: string;
  updated_at: string;
}
/** A tenant in a list: its profile and its limits (None is unlimited). */
export interface TenantInfo {
  tenant_id: string;
  profile: string;
  limits: Record<string, unknown>;
  created_at: string;
  updated_at: string;
}
/** The tasks of one track; the track "" has the tasks without a track. */
export interface TrackCounts {
  track: string;
  purpose: string;
  states: Record<string, number>;
  total: number;
  agents: (string)[];
}
/** The answer to an operator's command, or to a reaction. */
export type Verdict = "DONE" | "UNCHANGED";
/** A task to be added, and the state it starts in. */
export interface WireDefinition {
  task: Task;
  backlog: boolean;
  finished: Status | null;
}
/** A plan that has been read. */
export interface WirePlan {
  project: string | null;
  tracks: Record<string, string> | null;
  tasks: (WireDefinition)[];
  notes: (Fault)[];
  agent_roles: AgentRoles | null;
}
/** The kinds of events. */
export const EVENTS = [
  "TASK_ADDED",
  "TASK_EDITED",
  "TASK_REORDERED",
  "TASK_DUE",
  "CLAIM_ACQUIRED",
  "LEASE_RENEWED",
  "PROGRESS_REPORTED",
  "CLAIM_RELEASED",
  "CLAIM_EXPIRED",
  "CLAIM_ORPHANED",
  "CLAIM_STALE",
  "EXTERNAL_CHANGE",
  "CLAIM_SUPERSEDED",
  "TASK_ASSIGNED",
  "ASSIGNMENT_LAPSED",
  "RESULT_ACCEPTED",
  "CONVERGENCE_ESCALATED",
  "EVALUATION_REPORTED",
  "REVIEW_REJECTED",
  "TASK_RESET",
  "TASK_CANCELLED",
  "TASK_HELD",
  "TASK_REOPENED",
  "DEPENDENCY_MET",
  "DEPENDENCY_CANCELLED",
  "DEPENDENCY_REOPENED",
  "CHILD_ADDED",
  "CHILD_FINISHED",
  "CHILD_REOPENED",
  "CHILD_ID_TAKEN",
  "CHILDREN_ANNOUNCED",
  "SUBTASKS_SPAWNED",
  "RESULT_REJECTED",
  "RESULT_ADOPTED",
  "RESULT_DISCARDED",
  "PROMOTION_REQUESTED",
  "PROMOTION_FAILED",
  "PROMOTION_COMPLETED",
  "SESSION_REGISTERED",
  "SESSION_HEARTBEAT",
  "SESSION_ENDED",
  "IDS_TAKEN",
  "PROJECT_CHANGED",
  "EPOCH_RAISED",
  "TENANT_CHANGED",
  "CLAIM_DENIED",
  "SETTLED",
  "FEATURE_COUNTED",
  "KEY_CREATED",
  "KEY_ROTATED",
  "KEY_REVOKED"
] as const;
/** Method and path of each operation. */
export const ROUTES = {
  claim_task: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/claim"],
  renew_lease: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/renew"],
  report_progress: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/progress"],
  release_claim: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/release"],
  submit_result: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/submit"],
  spawn_subtasks: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/spawn"],
  adopt_result: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/adopt"],
  report_evaluation: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/evaluate"],
  claim_next: ["POST", "/v1/{tenant}/{project}/claim-next"],
  batch_claim: ["POST", "/v1/{tenant}/{project}/batch/claim"],
  batch_renew: ["POST", "/v1/{tenant}/{project}/batch/renew"],
  batch_submit: ["POST", "/v1/{tenant}/{project}/batch/submit"],
  register_session: ["POST", "/v1/{tenant}/{project}/sessions"],
  heartbeat_session: ["POST", "/v1/{tenant}/{project}/sessions/{session_id}/heartbeat"],
  end_session: ["POST", "/v1/{tenant}/{project}/sessions/{session_id}/end"],
  next_id: ["POST", "/v1/{tenant}/{project}/next-id"],
  list_tasks: ["GET", "/v1/{tenant}/{project}/tasks"],
  get_overview: ["GET", "/v1/{tenant}/{project}/overview"],
  get_activity: ["GET", "/v1/{tenant}/{project}/activity"],
  search_events: ["GET", "/v1/{tenant}/{project}/events/search"],
  get_task_state: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}"],
  check_push: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}/push"],
  get_claim_history: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}/history"],
  get_lineage: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}/lineage"],
  explain: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}/explain"],
  read_result: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}/result"],
  batch_get_states: ["POST", "/v1/{tenant}/{project}/batch/states"],
  ready: ["GET", "/v1/{tenant}/{project}/ready"],
  preview_next: ["GET", "/v1/{tenant}/{project}/claim-next"],
  list_reviews: ["GET", "/v1/{tenant}/{project}/reviews"],
  get_review: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}/review"],
  blocked: ["GET", "/v1/{tenant}/{project}/blocked"],
  list_refused_results: ["GET", "/v1/{tenant}/{project}/refused"],
  track_progress: ["GET", "/v1/{tenant}/{project}/progress"],
  get_graph: ["GET", "/v1/{tenant}/{project}/graph"],
  get_graph_layout: ["GET", "/v1/{tenant}/{project}/graph/layout"],
  get_plan: ["GET", "/v1/{tenant}/{project}/plan"],
  diff_plan: ["POST", "/v1/{tenant}/{project}/plan/diff"],
  check_plan: ["POST", "/v1/{tenant}/{project}/plan/check"],
  get_policy: ["GET", "/v1/{tenant}/{project}/policy"],
  list_sessions: ["GET", "/v1/{tenant}/{project}/sessions"],
  get_session: ["GET", "/v1/{tenant}/{project}/sessions/{session_id}"],
  get_session_memory: ["GET", "/v1/{tenant}/{project}/sessions/{session_id}/memory"],
  get_active_claims_for_session: ["GET", "/v1/{tenant}/{project}/sessions/{session_id}/claims"],
  list_expired_claims: ["GET", "/v1/{tenant}/{project}/expired-claims"],
  list_agents: ["GET", "/v1/{tenant}/{project}/agents"],
  read_events: ["GET", "/v1/{tenant}/{project}/events"],
  add_tasks: ["POST", "/v1/{tenant}/{project}/tasks"],
  edit_task: ["PATCH", "/v1/{tenant}/{project}/tasks/{task_id}"],
  import_plan: ["POST", "/v1/{tenant}/{project}/plan"],
  preview_reset: ["GET", "/v1/{tenant}/{project}/tasks/{task_id}/reset"],
  reset_task: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/reset"],
  cancel_task: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/cancel"],
  assign_task: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/assign"],
  force_release: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/force-release"],
  hold_task: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/hold"],
  reopen_task: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/reopen"],
  batch_act: ["POST", "/v1/{tenant}/{project}/batch/act"],
  discard_result: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/discard"],
  approve_review: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/approve"],
  reject_review: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/reject"],
  list_promotions: ["GET", "/v1/{tenant}/{project}/promotions"],
  settle_promotion: ["POST", "/v1/{tenant}/{project}/tasks/{task_id}/promotion"],
  set_policy: ["PATCH", "/v1/{tenant}/{project}/policy"],
  sweep: ["POST", "/v1/{tenant}/{project}/sweep"],
  create_key: ["POST", "/v1/{tenant}/_/keys"],
  list_keys: ["GET", "/v1/{tenant}/_/keys"],
  rotate_key: ["POST", "/v1/{tenant}/_/keys/{key_id}/rotate"],
  revoke_key: ["POST", "/v1/{tenant}/_/keys/{key_id}/revoke"],
  get_tenant: ["GET", "/v1/{tenant}/_/tenant"],
  set_tenant: ["PATCH", "/v1/{tenant}/_/tenant"],
  list_tenants: ["GET", "/v1/_/_/tenants"],
} as const;
export interface Operations {
  claim_task: { takes: ClaimTask; answers: ClaimResult };
  renew_lease: { takes: RenewLease; answers: RenewalResult };
  report_progress: { takes: ReportProgress; answers: ProgressResult };
  release_claim: { takes: ReleaseClaim; answers: ReleaseResult };
  submit_result: { takes: SubmitResult; answers: SubmissionResult };
  spawn_subtasks: { takes: SpawnSubtasks; answers: SpawnResult };
  adopt_result: { takes: AdoptResult; answers: SubmissionResult };
  report_evaluation: { takes: ReportEvaluation; answers: ReviewResult };
  claim_next: { takes: ClaimNext; answers: ClaimResult };
  batch_claim: { takes: BatchClaim; answers: Record<string, ClaimResult | Failed> };
  batch_renew: { takes: BatchRenew; answers: Record<string, RenewalResult | Failed> };
  batch_submit: { takes: BatchSubmit; answers: Record<string, SubmissionResult | Failed> };
  register_session: { takes: RegisterSession; answers: SessionInfo };
  heartbeat_session: { takes: HeartbeatSession; answers: SessionInfo };
  end_session: { takes: EndSession; answers: SessionEnd };
  next_id: { takes: NextId; answers: string | (string)[] };
  list_tasks: { takes: { states?: ("BACKLOG" | "PENDING" | "BLOCKED" | "IN_PROGRESS" | "IN_REVIEW" | "COMPLETED" | "CANCELLED" | "HELD")[]; tracks?: (string)[]; agent_id?: string; session_id?: string; tag?: string; text?: string; sort?: "order" | "priority" | "updated" | "state" | "id"; reverse?: boolean; limit?: number; after?: string }; answers: TaskPage };
  get_overview: { takes: { limit?: number }; answers: Overview };
  get_activity: { takes: { since?: string; until?: string; agent_id?: string; limit?: number }; answers: Activity };
  search_events: { takes: { task_id?: string; agent_id?: string; session_id?: string; user_id?: string; types?: ("TASK_ADDED" | "TASK_EDITED" | "TASK_REORDERED" | "TASK_DUE" | "CLAIM_ACQUIRED" | "LEASE_RENEWED" | "PROGRESS_REPORTED" | "CLAIM_RELEASED" | "CLAIM_EXPIRED" | "CLAIM_ORPHANED" | "CLAIM_STALE" | "CLAIM_SUPERSEDED" | "EXTERNAL_CHANGE" | "TASK_ASSIGNED" | "ASSIGNMENT_LAPSED" | "RESULT_ACCEPTED" | "CONVERGENCE_ESCALATED" | "EVALUATION_REPORTED" | "REVIEW_REJECTED" | "TASK_RESET" | "TASK_CANCELLED" | "TASK_HELD" | "TASK_REOPENED" | "DEPENDENCY_MET" | "DEPENDENCY_CANCELLED" | "DEPENDENCY_REOPENED" | "CHILD_ADDED" | "CHILD_FINISHED" | "CHILD_REOPENED" | "CHILD_ID_TAKEN" | "CHILDREN_ANNOUNCED" | "SUBTASKS_SPAWNED" | "RESULT_REJECTED" | "RESULT_ADOPTED" | "RESULT_DISCARDED" | "PROMOTION_REQUESTED" | "PROMOTION_FAILED" | "PROMOTION_COMPLETED" | "SESSION_REGISTERED" | "SESSION_HEARTBEAT" | "SESSION_ENDED" | "IDS_TAKEN" | "PROJECT_CHANGED" | "EPOCH_RAISED" | "TENANT_CHANGED" | "CLAIM_DENIED" | "SETTLED" | "FEATURE_COUNTED" | "KEY_CREATED" | "KEY_ROTATED" | "KEY_REVOKED")[]; before?: string; limit?: number }; answers: EventPage };
  get_task_state: { takes: {  }; answers: TaskState };
  check_push: { takes: { generation: number; commit: string; protected?: boolean }; answers: PushVerdict };
  get_claim_history: { takes: {  }; answers: (ClaimHistory)[] };
  get_lineage: { takes: {  }; answers: Lineage };
  explain: { takes: { agent_id?: string; session_id?: string; lease_duration_seconds?: number; agent_role?: string }; answers: Explanation };
  read_result: { takes: { digest?: string }; answers: unknown };
  batch_get_states: { takes: BatchGetStates; answers: Record<string, TaskState> };
  ready: { takes: { limit?: number; tracks?: (string)[]; agent_id?: string; agent_role?: string }; answers: (ReadyTask)[] };
  preview_next: { takes: { agent_id?: string; session_id?: string; tracks?: (string)[]; agent_role?: string }; answers: NextPreview };
  list_reviews: { takes: { limit?: number; after?: string }; answers: (ReviewInfo)[] };
  get_review: { takes: {  }; answers: ReviewInfo };
  blocked: { takes: { limit?: number; after?: string }; answers: (BlockedTask)[] };
  list_refused_results: { takes: { task_id?: string; include_settled?: boolean; limit?: number; after?: string }; answers: (TaskResult)[] };
  track_progress: { takes: {  }; answers: Record<string, Progress> };
  get_graph: { takes: { tracks?: (string)[]; around?: string; depth?: number }; answers: Graph };
  get_graph_layout: { takes: { tracks?: (string)[]; around?: string; depth?: number; folded?: boolean; hide_finished?: boolean }; answers: GraphLayout };
  get_plan: { takes: {  }; answers: WirePlan };
  diff_plan: { takes: DiffPlan; answers: PlanResult };
  check_plan: { takes: CheckPlan; answers: WirePlan };
  get_policy: { takes: {  }; answers: Settings };
  list_sessions: { takes: { include_ended?: boolean; limit?: number; after?: string }; answers: (SessionInfo)[] };
  get_session: { takes: {  }; answers: SessionInfo };
  get_session_memory: { takes: {  }; answers: SessionMemory };
  get_active_claims_for_session: { takes: {  }; answers: (TaskClaim)[] };
  list_expired_claims: { takes: { before?: string; limit?: number }; answers: (TaskClaim)[] };
  list_agents: { takes: { include_idle?: boolean }; answers: (AgentInfo)[] };
  read_events: { takes: { after?: string; limit?: number; task_id?: string; tail?: boolean; back?: number }; answers: Feed };
  add_tasks: { takes: AddTasks; answers: (AddResult)[] };
  edit_task: { takes: EditTask; answers: AddResult };
  import_plan: { takes: ImportPlan; answers: PlanResult };
  preview_reset: { takes: {  }; answers: (string)[] };
  reset_task: { takes: ResetTask; answers: OperatorResult };
  cancel_task: { takes: CancelTask; answers: OperatorResult };
  assign_task: { takes: AssignTask; answers: OperatorResult };
  force_release: { takes: ForceRelease; answers: OperatorResult };
  hold_task: { takes: HoldTask; answers: OperatorResult };
  reopen_task: { takes: ReopenTask; answers: OperatorResult };
  batch_act: { takes: BatchAct; answers: ActsResult };
  discard_result: { takes: DiscardResult; answers: null };
  approve_review: { takes: ApproveReview; answers: ReviewResult };
  reject_review: { takes: RejectReview; answers: ReviewResult };
  list_promotions: { takes: { task_id?: string; state?: "PENDING" | "FAILED" | "PROMOTED"; limit?: number; after?: string }; answers: (PromotionInfo)[] };
  settle_promotion: { takes: SettlePromotion; answers: PromotionInfo };
  set_policy: { takes: SetPolicy; answers: Settings };
  sweep: { takes: Sweep; answers: SweepResult };
  create_key: { takes: CreateKey; answers: NewKey };
  list_keys: { takes: { include_revoked?: boolean }; answers: (KeyInfo)[] };
  rotate_key: { takes: RotateKey; answers: NewKey };
  revoke_key: { takes: RevokeKey; answers: KeyInfo };
  get_tenant: { takes: {  }; answers: TenantInfo };
  set_tenant: { takes: SetTenant; answers: TenantInfo };
  list_tenants: { takes: {  }; answers: (TenantInfo)[] };
}
