/** A tool call: one line, opened on demand; charts and tables that it made stand below it. */
import { ChevronRight, CircleCheck, CircleX, Download, Loader, TriangleAlert } from 'lucide-react'
import { lazy, Suspense, useEffect, useState } from 'react'
import { useText } from '../i18n'
import type { Call } from '../state/turns'
import { Button } from '../ui/basics'
import type { Chat } from './conversation'
import { isImage, Picture } from './picture'

const TablePreview = lazy(() => import('../panels/table'))

function Elapsed({ since }: { since: string }) {
  const t = useText()
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 250)
    return () => clearInterval(timer)
  }, [])
  return <span className="tabular-nums">{t.seconds(Math.max(0, (now - Date.parse(since || new Date(now).toISOString())) / 1000))}</span>
}

function State({ call }: { call: Call }) {
  const t = useText()
  const name = t.callState[call.state]
  if (call.state === 'running') return <Loader size={15} className="shrink-0 animate-spin text-accent" aria-label={name} />
  if (call.state === 'success') return <CircleCheck size={15} className="shrink-0 text-good" aria-label={name} />
  if (call.state === 'waiting' || call.state === 'interrupted' || call.state === 'retried')
    return <TriangleAlert size={15} className="shrink-0 text-warn" aria-label={name} />
  return <CircleX size={15} className="shrink-0 text-bad" aria-label={name} />
}

/** The first argument that says something, on one line. */
function main(args: string): string {
  try {
    const values = Object.entries(JSON.parse(args) as Record<string, unknown>)
    return values.map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ').replace(/\s+/g, ' ').slice(0, 120)
  } catch {
    return args.slice(0, 120)
  }
}

function pretty(args: string): { code: string; rest: string } {
  try {
    const { code, ...rest } = JSON.parse(args) as Record<string, unknown>
    return { code: typeof code === 'string' ? code : '', rest: Object.keys(rest).length ? JSON.stringify(rest, null, 2) : '' }
  } catch {
    return { code: '', rest: args }
  }
}

export function ToolCard({ call, run, chat }: { call: Call; run: string; chat: Chat }) {
  const t = useText()
  const [open, setOpen] = useState(false)
  const [table, setTable] = useState(false)
  const going = call.state === 'running' || call.state === 'waiting'
  const images = call.files.filter(isImage)
  const others = call.files.filter((name) => !isImage(name))
  const { code, rest } = pretty(call.args)
  return (
    <div className="rounded-md border border-line bg-panel text-sm" data-testid="tool-card" data-state={call.state}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex min-h-9 w-full items-center gap-2 px-2.5 text-left">
        <ChevronRight size={15} className={`shrink-0 transition-transform ${open ? 'rotate-90' : ''}`} aria-hidden />
        <span className="font-medium">{call.tool}</span>
        <span className="min-w-0 flex-1 truncate text-soft">{main(call.args)}</span>
        {call.rows !== null && <span className="shrink-0 text-soft">{t.rows(call.rows)}</span>}
        <span className="shrink-0 text-soft">{going ? <Elapsed since={call.began} /> : call.ms > 0 ? t.seconds(call.ms / 1000) : ''}</span>
        <State call={call} />
      </button>
      {call.state === 'waiting' && (
        <div className="flex flex-wrap items-center gap-2 border-t border-line px-3 py-2">
          <span className="flex-1">{t.approvalAsked(call.tool)}</span>
          <Button look="main" onClick={() => chat.decide(run, call.id, true)}>
            {t.allow}
          </Button>
          <Button onClick={() => chat.decide(run, call.id, false)}>{t.refuse}</Button>
        </div>
      )}
      {call.output && (
        <pre className="max-h-48 overflow-auto border-t border-line px-3 py-2 text-xs" tabIndex={0} role="group" aria-label={t.output}>
          {call.output}
        </pre>
      )}
      {open && (
        <div className="space-y-2 border-t border-line px-3 py-2">
          <p className="text-xs font-semibold text-soft">{t.input}</p>
          {code && <Block text={code} label={t.input} />}
          {rest && <Block text={rest} label={t.input} />}
          {call.preview && (
            <>
              <p className="text-xs font-semibold text-soft">{t.modelSaw}</p>
              <Block text={call.preview} label={t.modelSaw} />
            </>
          )}
        </div>
      )}
      {call.state === 'failed' && !open && call.preview && (
        <pre className="overflow-x-auto border-t border-line px-3 py-2 text-xs text-bad" tabIndex={0} role="group" aria-label={t.callState.failed}>
          {call.preview.split('\n').slice(-10).join('\n')}
        </pre>
      )}
      {call.result && (
        <div className="flex flex-wrap items-center gap-2 border-t border-line px-3 py-1.5">
          <span className="min-w-0 flex-1 truncate text-soft">{t.saved(call.result)}</span>
          <Button look="quiet" onClick={() => setTable(!table)} aria-expanded={table}>
            {table ? t.hideTable : t.showTable}
          </Button>
          <a className="inline-flex size-8 items-center justify-center rounded-md text-soft hover:bg-raised" href={chat.api.resultUrl(call.result)} download={call.result} aria-label={t.downloadNamed(call.result)} title={t.download}>
            <Download size={15} />
          </a>
        </div>
      )}
      {table && (
        <div className="border-t border-line p-2">
          <Suspense fallback={<p className="p-2 text-soft">{t.loading}</p>}>
            <TablePreview api={chat.api} kind="results" name={call.result} />
          </Suspense>
        </div>
      )}
      {images.map((name) => (
        <Picture key={name} api={chat.api} name={name} />
      ))}
      {others.length > 0 && (
        <div className="flex flex-wrap gap-2 border-t border-line px-3 py-2">
          {others.map((name) => (
            <Button key={name} onClick={() => chat.preview(name)}>
              {name}
            </Button>
          ))}
        </div>
      )}
    </div>
  )
}

function Block({ text, label }: { text: string; label: string }) {
  return (
    <pre className="max-h-80 overflow-auto rounded bg-page p-2 text-xs" tabIndex={0} role="group" aria-label={label}>
      {text}
    </pre>
  )
}
