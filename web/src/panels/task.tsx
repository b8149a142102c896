/** Where the work stands: each item with its evidence, and by hand what a person may do to it. */
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Check, Pencil, Pin, PinOff, RotateCcw, Undo2 } from 'lucide-react'
import { type FormEvent, useState } from 'react'
import { ApiError, type ThreadApi } from '../api'
import { useText } from '../i18n'
import type { TaskItem, TaskView } from '../types'
import { Button, Empty, IconButton, Note } from '../ui/basics'
import { useToasts } from '../ui/toasts'

export default function TaskPanel({ api, onRecord }: { api: ThreadApi; onRecord: (record: number) => void }) {
  const t = useText()
  const toasts = useToasts()
  const queries = useQueryClient()
  const key = ['task', api.base]
  const task = useQuery({ queryKey: key, queryFn: api.task, retry: false })
  const [kind, setKind] = useState('constraint')
  const [text, setText] = useState('')
  const [focus, setFocus] = useState('')
  const [history, setHistory] = useState(false)
  const change = useMutation({
    mutationFn: api.changeTask,
    onSuccess: (now) => queries.setQueryData(key, now),
    onError: toasts.fail,
  })
  const refresh = useMutation({
    mutationFn: api.refreshTask,
    onSuccess: (done) => {
      queries.setQueryData(key, done.task)
      toasts.tell(t.refreshed(done.report))
    },
    onError: toasts.fail,
  })
  const add = (event: FormEvent) => {
    event.preventDefault()
    if (!text.trim()) return
    change.mutate({ action: 'add', kind, text: text.trim() }, { onSuccess: () => setText('') })
  }
  const shown: TaskView | undefined = task.data
  const kinds = shown?.kinds ?? []
  const alive = (item: TaskItem) => item.status !== 'withdrawn' && item.status !== 'superseded'
  return (
    <div className="space-y-4">
      {task.error instanceof ApiError &&
        (task.error.code === 'not_found' ? <Empty>{t.taskEmpty}</Empty> : <Note bad>{t.problem(task.error.problem)}</Note>)}
      {shown && (
        <>
          <p className="text-sm text-soft">{t.taskVersion(shown.version, shown.covers_seq)}</p>
          {shown.error && <Note>{shown.error}</Note>}
          {shown.items.length === 0 && <Empty>{t.taskEmpty}</Empty>}
          {kinds.map((one) => {
            const items = shown.items.filter((item) => item.kind === one && alive(item))
            return items.length === 0 ? null : (
              <section key={one} aria-label={t.kinds[one] ?? one}>
                <h3 className="mb-1 text-sm font-semibold">{t.kinds[one] ?? one}</h3>
                <ul className="space-y-1">
                  {items.map((item) => (
                    <ItemRow key={item.id} item={item} onRecord={onRecord} change={change.mutate} />
                  ))}
                </ul>
              </section>
            )
          })}
          {shown.items.some((item) => !alive(item)) && (
            <details>
              <summary className="text-sm text-soft">{t.noLonger(shown.items.filter((item) => !alive(item)).length)}</summary>
              <ul className="mt-1 space-y-1">
                {shown.items
                  .filter((item) => !alive(item))
                  .map((item) => (
                    <ItemRow key={item.id} item={item} onRecord={onRecord} change={change.mutate} />
                  ))}
              </ul>
            </details>
          )}
          <form onSubmit={add} className="space-y-2 border-t border-line pt-3">
            <h3 className="text-sm font-semibold">{t.addByHand}</h3>
            <div className="flex gap-2">
              <select className="field !w-auto" aria-label={t.kind} value={kind} onChange={(event) => setKind(event.target.value)}>
                {kinds.map((one) => (
                  <option key={one} value={one}>
                    {t.kinds[one] ?? one}
                  </option>
                ))}
              </select>
              <input className="field" aria-label={t.itemText} maxLength={300} value={text} onChange={(event) => setText(event.target.value)} />
              <Button type="submit">{t.add}</Button>
            </div>
          </form>
          <div className="flex gap-2">
            <input className="field" aria-label={t.focus} placeholder={t.focusPlaceholder} value={focus} onChange={(event) => setFocus(event.target.value)} />
            <Button className="shrink-0" disabled={refresh.isPending} onClick={() => refresh.mutate(focus)}>
              {refresh.isPending ? t.refreshing : t.refreshNow}
            </Button>
          </div>
          <Button look="quiet" aria-expanded={history} onClick={() => setHistory(!history)}>
            {t.history}
          </Button>
          {history && <History api={api} version={shown.version} />}
        </>
      )}
    </div>
  )
}

type Change = (change: { action: string; item?: string; text?: string }) => void

function ItemRow({ item, onRecord, change }: { item: TaskItem; onRecord: (record: number) => void; change: Change }) {
  const t = useText()
  const [text, setText] = useState<string | null>(null)
  const act = (action: string, more: { text?: string } = {}) => change({ action, item: item.id, ...more })
  const gone = item.status === 'withdrawn' || item.status === 'superseded'
  const save = () => {
    if (text?.trim() && text !== item.text) act('edit', { text: text.trim() })
    setText(null)
  }
  return (
    <li className="rounded-md border border-line px-2 py-1.5 text-sm" data-item={item.id}>
      {text === null ? (
        <p className={`[overflow-wrap:anywhere] ${gone || item.status === 'done' ? 'text-soft line-through' : ''}`}>{item.text}</p>
      ) : (
        <input
          className="field"
          autoFocus
          aria-label={t.itemText}
          maxLength={300}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onBlur={save}
          onKeyDown={(event) => {
            if (event.key === 'Enter') save()
            if (event.key === 'Escape') setText(null)
          }}
        />
      )}
      <div className="flex flex-wrap items-center gap-1 text-xs text-soft">
        {!item.verified && <span className="text-warn">{t.unconfirmed}</span>}
        <span>{t.status[item.status] ?? item.status}</span>
        {item.source.map((source, number) => (
          <button key={number} type="button" title={source.quote} className="text-accent underline" aria-label={t.evidence(source.record, source.quote)} onClick={() => onRecord(source.record)}>
            #{source.record}
          </button>
        ))}
        <span className="flex-1" />
        {!gone && (
          <>
            <IconButton name={item.pinned ? t.unpin : t.pin} onClick={() => act(item.pinned ? 'unpin' : 'pin')}>
              {item.pinned ? <PinOff size={14} /> : <Pin size={14} />}
            </IconButton>
            <IconButton name={t.editItem} onClick={() => setText(item.text)}>
              <Pencil size={14} />
            </IconButton>
            {item.status !== 'done' && (
              <IconButton name={t.markDone} onClick={() => act('done')}>
                <Check size={14} />
              </IconButton>
            )}
            <IconButton name={t.withdraw} onClick={() => act('withdraw')}>
              <Undo2 size={14} />
            </IconButton>
          </>
        )}
        {(gone || item.status === 'done') && (
          <IconButton name={t.reopen} onClick={() => act('reopen')}>
            <RotateCcw size={14} />
          </IconButton>
        )}
      </div>
    </li>
  )
}

function History({ api, version }: { api: ThreadApi; version: number }) {
  const t = useText()
  const history = useQuery({ queryKey: ['task-history', api.base, version], queryFn: api.taskHistory, retry: false })
  return (
    <ol className="space-y-2 text-sm" aria-label={t.history}>
      {[...(history.data?.versions ?? [])].reverse().map((one) => (
        <li key={one.ledger.version} className="rounded bg-panel px-2 py-1">
          <p className="text-xs text-soft">
            v{one.ledger.version} · {t.when(one.ledger.at)} · {t.changedBy(String(one.change.by ?? ''))}
          </p>
          <p className="[overflow-wrap:anywhere]">
            {[one.change.action, one.change.kind, one.change.item, one.change.text, one.change.focus].filter(Boolean).map(String).join(' · ')}
          </p>
          <p className="text-xs text-soft">{t.items(one.ledger.items.length)}</p>
        </li>
      ))}
    </ol>
  )
}
