/** A turn as the page shows it, made by pure functions from a run's events or from the log's records.
 *
 * Both ways give the same value, so that a page looks the same while it streams, after a reload and a year later.
 */
import type { ContextSummary, LogRecord, Part, RunError, RunEvent, Usage } from '../types'

export interface Call {
  kind: 'call'
  step: number
  id: string
  tool: string
  args: string
  state: 'running' | 'waiting' | 'success' | 'failed' | 'denied' | 'retried' | 'interrupted'
  /** What running code has printed so far; empty once the call has returned. */
  output: string
  preview: string
  ms: number
  result: string
  rows: number | null
  files: string[]
  /** When it began, by the run's clock; empty when told from the log. */
  began: string
}

export interface Prose {
  kind: 'text' | 'thinking'
  step: number
  text: string
  /** Where the whole text is, when `text` is only its beginning. */
  cut: { record: number; chars: number } | null
}

export type Piece = Call | Prose

export interface Turn {
  /** Number in the thread; 0 until the server has begun it. */
  turn: number
  run: string
  /** The last event taken in. Older and equal numbers are passed over. */
  seq: number
  question: Prose
  /** Record of the question, 0 while unknown. */
  record: number
  at: string
  model: string
  attached: string
  notices: string[]
  step: number
  pieces: Piece[]
  context: ContextSummary | null
  usage: Usage | null
  state: 'waiting' | 'running' | 'answered' | 'stopped' | 'failed'
  error: RunError | null
  notSaved: boolean
}

const OUTPUT_CHARS = 20_000
const STATES = new Set(['success', 'failed', 'denied', 'retried', 'interrupted'])

export function asked(run: string, text: string): Turn {
  return {
    turn: 0,
    run,
    seq: 0,
    question: { kind: 'text', step: -1, text, cut: null },
    record: 0,
    at: '',
    model: '',
    attached: '',
    notices: [],
    step: 0,
    pieces: [],
    context: null,
    usage: null,
    state: 'waiting',
    error: null,
    notSaved: false,
  }
}

/** The turn after one more event. An event already taken in, or of an unknown type, changes nothing but `seq`. */
export function step(turn: Turn, event: RunEvent): Turn {
  if (event.seq <= turn.seq) return turn
  const next: Turn = { ...turn, seq: event.seq }
  const data = event.data
  switch (event.type) {
    case 'run_started':
      if (typeof data.question === 'string' && data.question) next.question = { ...turn.question, text: data.question }
      next.at = event.at
      break
    case 'turn_started':
      next.turn = Number(data.turn)
      next.record = Number(data.question_seq)
      next.model = String(data.model ?? '')
      next.attached = String(data.attached ?? '')
      next.notices = (data.notices as string[] | undefined) ?? []
      next.state = 'running'
      break
    case 'request_sent':
      next.step = Number(data.step)
      next.context = data.context as ContextSummary
      break
    case 'text_delta':
    case 'thinking_delta':
      next.pieces = more(turn.pieces, event.type === 'text_delta' ? 'text' : 'thinking', next.step, String(data.text))
      break
    case 'tool_called':
      next.pieces = [...turn.pieces, newCall(next.step, String(data.call_id), String(data.tool), JSON.stringify(data.arguments), event.at)]
      break
    case 'approval_asked':
      next.pieces = change(turn.pieces, String(data.call_id), (call) => ({ ...call, state: 'waiting' }))
      break
    case 'tool_output':
      next.pieces = change(turn.pieces, String(data.call_id), (call) => ({
        ...call,
        state: 'running',
        output: (call.output + String(data.text)).slice(-OUTPUT_CHARS),
      }))
      break
    case 'tool_returned':
      next.pieces = change(turn.pieces, String(data.call_id), (call) => ({
        ...call,
        state: outcome(data.outcome),
        output: '',
        preview: String(data.text ?? ''),
        ms: Number(data.ms ?? 0),
        result: String(data.result ?? ''),
        rows: typeof data.rows === 'number' ? data.rows : null,
        files: (data.files as string[] | undefined) ?? [],
      }))
      break
    case 'turn_ended':
      next.state = data.reason as Turn['state']
      next.usage = data.usage as Usage
      next.error = (data.error as RunError | null) ?? null
      next.notSaved = Boolean(data.not_saved)
      next.pieces = ended(turn.pieces)
      break
    case 'run_failed': {
      const error = data.error as RunError
      next.state = error.code === 'stopped' ? 'stopped' : 'failed'
      next.error = error
      next.pieces = ended(turn.pieces)
      break
    }
  }
  return next
}

function outcome(value: unknown): Call['state'] {
  return (STATES.has(String(value)) ? value : 'success') as Call['state']
}

function newCall(step: number, id: string, tool: string, args: string, began: string): Call {
  return { kind: 'call', step, id, tool, args, state: 'running', output: '', preview: '', ms: 0, result: '', rows: null, files: [], began }
}

/** Text goes on in the last piece of its kind and request, else it begins a new one. */
function more(pieces: Piece[], kind: Prose['kind'], step: number, text: string): Piece[] {
  const last = pieces[pieces.length - 1]
  if (last && last.kind === kind && last.step === step) return [...pieces.slice(0, -1), { ...last, text: last.text + text }]
  return text ? [...pieces, { kind, step, text, cut: null }] : pieces
}

function change(pieces: Piece[], id: string, to: (call: Call) => Call): Piece[] {
  return pieces.map((piece) => (piece.kind === 'call' && piece.id === id ? to(piece) : piece))
}

/** No call goes on after its turn. */
function ended(pieces: Piece[]): Piece[] {
  return pieces.map((piece) =>
    piece.kind === 'call' && (piece.state === 'running' || piece.state === 'waiting')
      ? { ...piece, state: 'interrupted', output: '' }
      : piece,
  )
}

/** Turns of a page of records, oldest first. The first one may lack its beginning: it stands on an older page. */
export function fromRecords(records: LogRecord[]): Turn[] {
  const turns: Turn[] = []
  for (const record of records) {
    let turn = turns[turns.length - 1]
    if (!turn || turn.turn !== record.turn) {
      turn = { ...asked('', ''), turn: record.turn, at: record.at, state: 'running' }
      turns.push(turn)
    }
    take(turn, record)
  }
  return turns.map((turn) => ({ ...turn, pieces: turn.state === 'running' ? turn.pieces : ended(turn.pieces) }))
}

/** Takes a record into a turn that is being built. */
function take(turn: Turn, record: LogRecord): void {
  const event = record.event
  if (event?.type === 'request' && event.context) {
    turn.context = event.context
    turn.step = event.context.step
    turn.model = event.context.model
  } else if (event?.type === 'turn_ended') {
    turn.state = (event.reason as Turn['state'] | undefined) ?? 'answered'
    turn.usage = event.usage ?? null
    turn.error = event.error ?? null
    turn.notSaved = Boolean(event.not_saved)
  } else if (record.kind === 'question') {
    const part = record.parts?.[0]
    turn.record = record.seq
    turn.at = record.at
    if (part) turn.question = prose(part, record.seq, -1)
  } else {
    for (const part of record.parts ?? []) taken(turn, record, part)
  }
}

function taken(turn: Turn, record: LogRecord, part: Part): void {
  if (part.kind === 'call') {
    turn.pieces = [...turn.pieces, newCall(turn.step, part.call_id ?? '', part.tool ?? '', part.text, '')]
  } else if (part.kind === 'returned') {
    turn.pieces = change(turn.pieces, part.call_id ?? '', (call) => ({
      ...call,
      state: outcome(part.outcome),
      preview: part.text,
      ms: part.ms ?? 0,
      result: part.result ?? '',
      rows: part.rows ?? null,
      files: part.files ?? [],
    }))
  } else if (part.text && part.kind !== 'other') {
    const last = turn.pieces[turn.pieces.length - 1]
    const fresh = prose(part, record.seq, turn.step)
    turn.pieces =
      last && last.kind === fresh.kind && last.step === fresh.step && !last.cut
        ? [...turn.pieces.slice(0, -1), { ...last, text: last.text + fresh.text, cut: fresh.cut }]
        : [...turn.pieces, fresh]
  }
}

function prose(part: Part, record: number, step: number): Prose {
  const kind = part.kind === 'thinking' ? 'thinking' : 'text'
  return { kind, step, text: part.text, cut: part.cut ? { record, chars: part.chars } : null }
}

/** What a thread's page holds: records by number, and the runs that are followed. */
export interface Thread {
  records: LogRecord[]
  before: number | null
  runs: Turn[]
}

export const EMPTY: Thread = { records: [], before: null, runs: [] }

/** Newest page of the log. Older records are kept where the page overlaps what is there, on the same branch.
 *
 * A run whose turn the page tells to its end has done its part.
 */
export function withTail(thread: Thread, records: LogRecord[], before: number | null): Thread {
  const at = thread.records.findIndex((record) => record.id === records[0]?.id)
  const older = at > 0 ? thread.records.slice(0, at) : []
  const told = new Set(records.filter((record) => record.event?.type === 'turn_ended').map((record) => record.turn))
  return {
    records: [...older, ...records],
    before: at >= 0 ? thread.before : before,
    runs: thread.runs.filter((run) => !(over(run) && told.has(run.turn))),
  }
}

export function withOlder(thread: Thread, records: LogRecord[], before: number | null): Thread {
  const first = thread.records[0]?.seq ?? Infinity
  return { ...thread, records: [...records.filter((record) => record.seq < first), ...thread.records], before }
}

export function withRun(thread: Thread, run: string, text: string): Thread {
  return thread.runs.some((one) => one.run === run) ? thread : { ...thread, runs: [...thread.runs, asked(run, text)] }
}

export function withoutRun(thread: Thread, run: string): Thread {
  return { ...thread, runs: thread.runs.filter((one) => one.run !== run) }
}

/** Takes events in; the order of arrival doesn't matter where numbers repeat. */
export function withEvents(thread: Thread, run: string, events: RunEvent[]): Thread {
  return { ...thread, runs: thread.runs.map((one) => (one.run === run ? events.reduce(step, one) : one)) }
}

export function over(turn: Turn): boolean {
  return turn.state !== 'running' && turn.state !== 'waiting'
}

const memo = new WeakMap<LogRecord[], Turn[]>()

function told(records: LogRecord[]): Turn[] {
  const known = memo.get(records) ?? fromRecords(records)
  memo.set(records, known)
  return known
}

/** The turns to show, oldest first: a followed run stands for its turn's records. */
export function turnsOf(thread: Thread): Turn[] {
  // A run's turn is the newest of its branch: what the records tell from its number on belongs to another one.
  const first = Math.min(...thread.runs.map((run) => run.turn || Infinity))
  // A turn without an end is the one that a run is about to tell, whose first events may still be on their way.
  const going = thread.runs.some((run) => !over(run))
  return [...told(thread.records).filter((turn) => turn.turn < first && !(going && turn.state === 'running')), ...thread.runs]
}
