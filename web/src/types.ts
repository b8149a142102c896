/** What the server says, as its OpenAPI describes it. Unknown event types and fields are passed over. */

export interface Problem {
  status: number
  code: string
  detail: string
  hint: string
  details: Record<string, unknown>
}

export interface ThreadInfo {
  thread: string
  title: string
  model: string
  created: string
  used: string
  pinned: boolean
  archived: boolean
  branched: boolean
  state: string
  running: string[]
}

export interface LayerTokens {
  layer: string
  tokens: number
}

/** A request in short: what the strip under an answer shows. */
export interface ContextSummary {
  step: number
  model: string
  layers: LayerTokens[]
  tokens: number
  window: number
  output: number
  stable_share: number
  coverage: string
  left_out: number
}

export interface Usage {
  requests: number
  input_tokens: number
  cached_tokens: number
  output_tokens: number
  cost_usd: number | null
}

export interface RunError {
  code: string
  message: string
  hint: string
}

export interface Part {
  kind: 'text' | 'thinking' | 'call' | 'returned' | 'other'
  text: string
  chars: number
  cut: boolean
  call_id?: string
  tool?: string
  outcome?: string
  ms?: number
  result?: string
  rows?: number | null
  files?: string[]
}

export interface LogEvent {
  type: string
  context?: ContextSummary
  reason?: string
  usage?: Usage
  error?: RunError | null
  not_saved?: boolean
}

export interface LogRecord {
  seq: number
  id: string
  parent: string | null
  turn: number
  at: string
  tokens: number
  kind: 'question' | 'answer' | 'results' | 'event'
  cut?: boolean
  parts?: Part[]
  event?: LogEvent
}

export interface RecordPage {
  records: LogRecord[]
  before: number | null
}

export interface RunEvent {
  v: number
  seq: number
  run: string
  type: string
  at: string
  data: Record<string, unknown>
}

export interface RunInfo {
  run: string
  thread: string
  state: string
  last: number
}

export interface Entry {
  seq: number
  kind: string
  chars: number
  text?: string
}

export interface Block {
  layer: string
  source: string
  tokens: number
  chars: number
  records: [number, number][]
  state: string
  note: string
  clipped?: number[]
  entries: Entry[]
}

export interface LeftOut {
  from_seq: number
  to_seq: number
  reason: string
  covered_by: string
}

export interface Growth {
  layer: string
  tokens: number
}

export interface ContextView {
  turn: number
  step: number
  steps?: number
  model: string
  blocks: Block[]
  left_out: LeftOut[]
  budget: { window: number; output: number; fixed: number; history: number; used: number; estimated_by: string }
  prefix: { hash: string; stable_share: number }
  summed: number
  coverage: string
  rebuilt_equal?: boolean
  outlook?: { grew: Growth | null; since: number | null; turns_left: number | null }
}

export interface Hit {
  seq?: number
  turn?: number
  layer?: string
  kind?: string
  name?: string
  id?: string
  state?: string
  status?: string
  reason?: string
  in_context?: boolean
  text: string
  times: number
}

export interface WhyView {
  words: string
  context: Hit[]
  log: Hit[]
  task: Hit[]
  memory: Hit[]
  results: Hit[]
}

export interface TaskItem {
  id: string
  kind: string
  text: string
  status: string
  source: { record: number; quote: string }[]
  verified: boolean
  pinned: boolean
}

export interface TaskView {
  version: number
  covers_seq: number
  items: TaskItem[]
  kinds: string[]
  at: string
  error: string
}

export interface Fact {
  id: string
  text: string
  importance: number
  status: string
  origin: string
  created_at: string
  confirmed_at: string
  updated_at: string
  superseded_by: string | null
  until: string
  applies_to: string
  source: { thread: string; record: number; quote: string } | null
  used: { count: number }
}

export interface MemoryView {
  use: boolean
  extract: boolean
  facts: Fact[]
  meters: { facts: number; most_facts: number; chars: number; most_chars: number }
}

export interface FileInfo {
  name: string
  bytes: number
  changed: string
  version: number
  versions: number
}

export interface ResultInfo {
  name: string
  tool: string
  arguments: Record<string, unknown>
  bytes: number
  media_type: string
  rows: number | null
  created: string
  expires: string
  state: string
}

export interface FilesView {
  files: FileInfo[]
  results: ResultInfo[]
}

export interface RowsView {
  columns: string[]
  rows: Record<string, unknown>[]
  offset: number
  total: number
}

export interface SandboxView {
  available: boolean
  alive: boolean
  busy?: boolean
  idle_left_s?: number
  age_left_s?: number
  names?: string[]
  cause?: string
  hint?: string
}

export interface SearchHit {
  thread: string
  title: string
  record: number
  turn: number
  at: string
  speaker: string
  text: string
}

export interface Receipt {
  removed: Record<string, { count: number; bytes: number }>
  [more: string]: unknown
}

export interface Setting {
  key: string
  value: unknown
  unit: string
  source: string
}

export interface ThreadNews {
  type: string
  run?: string
  runs?: string[]
}

export interface Fork {
  /** Siblings: each turn with its question's record, and the record that selects its branch. */
  options: { turn: number; question: number; record: number; active: boolean }[]
}
