/** What the model was given: layers, exact texts, what was left out, and why words do or don't stand there. */
import { useQuery } from '@tanstack/react-query'
import { type FormEvent, useEffect, useState } from 'react'
import { ApiError, type ThreadApi } from '../api'
import { Bar, layerColour } from '../chat/strip'
import { useText } from '../i18n'
import type { Block, ContextView, Hit, LeftOut, WhyView } from '../types'
import { Button, Empty, Note } from '../ui/basics'

interface Props {
  api: ThreadApi
  /** Null is the newest turn. */
  turn: number | null
  turns: number[]
  draft: () => string
  onTurn: (turn: number | null) => void
  onRecord: (record: number) => void
}

export default function ContextPanel({ api, turn, turns, draft, onTurn, onRecord }: Props) {
  const t = useText()
  const [step, setStep] = useState<number | null>(null)
  const [next, setNext] = useState<string | null>(null)
  const newest = turns[turns.length - 1] ?? 0
  useEffect(() => {
    setStep(null)
  }, [turn])
  const view = useQuery({
    queryKey: ['context', api.base, next === null ? (turn ?? newest) : 'next', step, next],
    queryFn: () => (next === null ? api.context(turn ?? (newest || null), step) : api.nextContext(next)),
    retry: false,
  })
  const shown = view.data
  return (
    <div className="space-y-4">
      <div className="flex flex-wrap items-center gap-2">
        <label className="flex items-center gap-1.5 text-sm">
          <span className="sr-only">{t.turn}</span>
          <select
            className="field !w-auto"
            value={next !== null ? 'next' : String(turn ?? newest)}
            onChange={(event) => {
              if (event.target.value === 'next') setNext(draft())
              else {
                setNext(null)
                onTurn(Number(event.target.value))
              }
            }}
          >
            {[...turns].reverse().map((one) => (
              <option key={one} value={one}>
                {t.turnNumber(one)}
              </option>
            ))}
            <option value="next">{t.nextRequest}</option>
          </select>
        </label>
        {shown && (shown.steps ?? 1) > 1 && next === null && (
          <label className="text-sm">
            <span className="sr-only">{t.requestOfTurn}</span>
            <select className="field !w-auto" value={String(shown.step)} onChange={(event) => setStep(Number(event.target.value))}>
              {Array.from({ length: shown.steps ?? 1 }, (_, one) => (
                <option key={one} value={one}>
                  {t.request(one + 1, shown.steps ?? 1)}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      {view.error instanceof ApiError && (view.error.code === 'not_found' ? <Empty>{t.contextEmpty}</Empty> : <Note bad>{t.problem(view.error.problem)}</Note>)}
      {view.isLoading && <p className="text-sm text-soft">{t.loading}</p>}
      {shown && <Shown view={shown} next={next !== null} onRecord={onRecord} />}
      <Why api={api} turn={turn ?? (newest || null)} onRecord={onRecord} />
    </div>
  )
}

function Shown({ view, next, onRecord }: { view: ContextView; next: boolean; onRecord: (record: number) => void }) {
  const t = useText()
  const layers = view.blocks.map((block) => ({ layer: block.layer, tokens: block.tokens }))
  const grew = view.outlook?.grew
  const turnsLeft = view.outlook?.turns_left
  return (
    <>
      {next && <Note>{t.nextExplained}</Note>}
      <div>
        <p className="mb-1 flex justify-between text-sm tabular-nums">
          <span>{t.ofWindow(view.summed, view.budget.window)}</span>
          <span className="text-soft">{t.stableShare(view.prefix.stable_share)}</span>
        </p>
        <Bar layers={layers} window={view.budget.window} label={t.layersOf(layers)} />
        <p className="mt-1 text-xs text-soft">{t.historyBudget(layers.filter((one) => one.layer === 'history').reduce((sum, one) => sum + one.tokens, 0), view.budget.history)}</p>
        {grew && view.outlook?.since !== null && view.outlook?.since !== undefined && (
          <p className="text-xs text-soft">{t.grewMost(t.layers[grew.layer] ?? grew.layer, grew.tokens, view.outlook.since)}</p>
        )}
        {turnsLeft !== null && turnsLeft !== undefined && <p className="text-xs text-soft">{t.turnsLeft(turnsLeft)}</p>}
      </div>
      {view.coverage === 'partial' && <Note bad>{t.partial}</Note>}
      {view.rebuilt_equal === false && <Note bad>{t.notEqual}</Note>}
      <ul className="space-y-1" aria-label={t.blocks}>
        {view.blocks.map((block, number) => (
          <li key={number}>
            <BlockRow block={block} onRecord={onRecord} />
          </li>
        ))}
      </ul>
      <section aria-label={t.leftOut}>
        <h3 className="mb-1 text-sm font-semibold">{t.leftOut}</h3>
        {view.left_out.length === 0 ? (
          <p className="text-sm text-soft">{t.nothingLeftOut}</p>
        ) : (
          <ul className="space-y-1 text-sm">
            {view.left_out.map((left, number) => (
              <li key={number}>
                <LeftRow left={left} onRecord={onRecord} />
              </li>
            ))}
          </ul>
        )}
      </section>
    </>
  )
}

function RecordLink({ record, onRecord }: { record: number; onRecord: (record: number) => void }) {
  const t = useText()
  return (
    <button type="button" className="rounded px-0.5 text-accent underline" aria-label={t.goToRecord(record)} onClick={() => onRecord(record)}>
      #{record}
    </button>
  )
}

function LeftRow({ left, onRecord }: { left: LeftOut; onRecord: (record: number) => void }) {
  const t = useText()
  return (
    <p>
      <RecordLink record={left.from_seq} onRecord={onRecord} />–<RecordLink record={left.to_seq} onRecord={onRecord} />
      <span className="text-soft">
        {' '}
        {t.leftReason[left.reason] ?? left.reason}; {t.coveredBy[left.covered_by] ?? left.covered_by}
      </span>
    </p>
  )
}

function BlockRow({ block, onRecord }: { block: Block; onRecord: (record: number) => void }) {
  const t = useText()
  const [open, setOpen] = useState(false)
  const last = block.records[block.records.length - 1]
  return (
    <div className="rounded-md border border-line">
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex min-h-8 w-full items-center gap-2 px-2 text-left text-sm">
        <span className="size-3 shrink-0 rounded-sm" style={{ background: layerColour(block.layer) }} aria-hidden />
        <span className="min-w-0 flex-1 truncate">
          {t.layers[block.layer] ?? block.layer}
          {block.records[0] && last && <span className="text-soft">{` #${block.records[0][0]}–#${last[1]}`}</span>}
        </span>
        {block.state !== 'whole' && <span className="text-xs text-warn">{t.blockState[block.state] ?? block.state}</span>}
        <span className="text-soft tabular-nums">{t.number(block.tokens)}</span>
      </button>
      {open && (
        <div className="space-y-2 border-t border-line p-2">
          <p className="text-xs break-all text-soft">
            {t.source}: {block.source}
            {block.note ? ` · ${block.note}` : ''}
          </p>
          {block.entries.map((entry, number) => (
            <div key={number}>
              <p className="flex items-center gap-2 text-xs text-soft">
                {entry.seq > 0 && <RecordLink record={entry.seq} onRecord={onRecord} />}
                <span>{entry.kind}</span>
                <span>{t.chars(entry.chars)}</span>
                {block.clipped?.includes(entry.seq) && <span className="text-warn">{t.clipped}</span>}
              </p>
              <pre className="max-h-72 overflow-auto rounded bg-panel p-2 text-xs whitespace-pre-wrap [overflow-wrap:anywhere]" tabIndex={0} role="group" aria-label={t.exactText}>
                {entry.text}
              </pre>
            </div>
          ))}
        </div>
      )}
    </div>
  )
}

function Why({ api, turn, onRecord }: { api: ThreadApi; turn: number | null; onRecord: (record: number) => void }) {
  const t = useText()
  const [words, setWords] = useState('')
  const [asked, setAsked] = useState('')
  const found = useQuery({ queryKey: ['why', api.base, asked, turn], queryFn: () => api.why(asked, turn), enabled: asked !== '', retry: false })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setAsked(words.trim())
  }
  return (
    <section aria-label={t.why} className="border-t border-line pt-3">
      <h3 className="mb-1 text-sm font-semibold">{t.why}</h3>
      <form onSubmit={submit} className="flex gap-2">
        <input className="field" value={words} onChange={(event) => setWords(event.target.value)} aria-label={t.whyWords} placeholder={t.whyPlaceholder} />
        <Button type="submit">{t.look}</Button>
      </form>
      {found.error instanceof ApiError && <Note bad>{t.problem(found.error.problem)}</Note>}
      {found.data && <Found found={found.data} onRecord={onRecord} />}
    </section>
  )
}

function Found({ found, onRecord }: { found: WhyView; onRecord: (record: number) => void }) {
  const t = useText()
  const groups: [string, Hit[]][] = [
    [t.inContext, found.context],
    [t.inLog, found.log],
    [t.inTask, found.task],
    [t.inMemory, found.memory],
    [t.inFiles, found.results],
  ]
  return (
    <div className="mt-2 space-y-2 text-sm" data-testid="why">
      {groups.map(([name, hits]) => (
        <section key={name} aria-label={name}>
          <h4 className="font-medium">
            {name} <span className="text-soft">({hits.length})</span>
          </h4>
          {hits.length === 0 && <p className="text-soft">{t.nowhere}</p>}
          <ul className="space-y-1">
            {hits.map((hit, number) => (
              <li key={number} className="rounded bg-panel px-2 py-1">
                <span className="text-xs text-soft">
                  {hit.seq ? <RecordLink record={hit.seq} onRecord={onRecord} /> : null} {hit.layer ? (t.layers[hit.layer] ?? hit.layer) : (hit.name ?? '')}{' '}
                  {hit.status ?? ''} {hit.reason ?? ''}
                </span>
                <p className="[overflow-wrap:anywhere]">{hit.text}</p>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </div>
  )
}
