/** A table of the thread: its first rows as a virtual list, or drawn as a chart. */
import { useQuery } from '@tanstack/react-query'
import { lazy, Suspense, useRef, useState } from 'react'
import { Virtualizer } from 'virtua'
import { ApiError, type ThreadApi } from '../api'
import { useText } from '../i18n'
import type { RowsView } from '../types'
import { Button, Note } from '../ui/basics'

const Chart = lazy(() => import('./chart'))

export default function TablePreview({ api, kind, name }: { api: ThreadApi; kind: 'files' | 'results'; name: string }) {
  const t = useText()
  const [drawn, setDrawn] = useState(false)
  const rows = useQuery({ queryKey: ['rows', api.base, kind, name], queryFn: () => api.rows(kind, name, 0), retry: false })
  if (rows.error instanceof ApiError) return <Note bad>{t.problem(rows.error.problem)}</Note>
  if (!rows.data) return <p className="p-2 text-sm text-soft">{t.loading}</p>
  return (
    <div className="space-y-2">
      <div className="flex flex-wrap items-center gap-2 text-xs text-soft">
        <span className="flex-1">{t.shownRows(rows.data.rows.length, rows.data.total)}</span>
        <Button look="quiet" aria-pressed={drawn} onClick={() => setDrawn(!drawn)}>
          {drawn ? t.asTable : t.asChart}
        </Button>
        <a className="text-accent underline" download={name.replace(/\.\w+$/, '') + '.csv'} href={`data:text/csv;charset=utf-8,${encodeURIComponent('\ufeff' + csv(rows.data))}`}>
          CSV
        </a>
      </div>
      {drawn ? (
        <Suspense fallback={<p className="p-2 text-sm text-soft">{t.loading}</p>}>
          <Chart view={rows.data} name={name} />
        </Suspense>
      ) : (
        <Table view={rows.data} name={name} />
      )}
    </div>
  )
}

function cell(value: unknown): string {
  return value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** A value that a spreadsheet would take for a formula gets an apostrophe. */
function csv(view: RowsView): string {
  const field = (value: unknown) => {
    const text = cell(value)
    const safe = typeof value === 'string' && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
  }
  return [view.columns, ...view.rows.map((row) => view.columns.map((column) => row[column]))].map((row) => row.map(field).join(',')).join('\r\n')
}

function Table({ view, name }: { view: RowsView; name: string }) {
  const t = useText()
  const box = useRef<HTMLDivElement>(null)
  const width = { gridTemplateColumns: `repeat(${view.columns.length || 1}, minmax(7rem, 1fr))` }
  return (
    <div ref={box} className="max-h-80 overflow-auto rounded border border-line text-xs" tabIndex={0} role="table" aria-label={t.tableNamed(name)} aria-rowcount={view.total + 1} aria-colcount={view.columns.length}>
      <div role="rowgroup" className="sticky top-0 z-10 bg-panel">
        <div role="row" className="grid min-w-max font-semibold" style={width}>
          {view.columns.map((column) => (
            <span key={column} role="columnheader" className="truncate border-b border-line px-2 py-1">
              {column}
            </span>
          ))}
        </div>
      </div>
      <div role="rowgroup">
        <Virtualizer scrollRef={box} startMargin={28}>
          {view.rows.map((row, number) => (
            <div key={number} role="row" aria-rowindex={view.offset + number + 2} className="grid min-w-max border-b border-line tabular-nums" style={width}>
              {view.columns.map((column) => (
                <span key={column} role="cell" className="truncate px-2 py-0.5" title={cell(row[column])}>
                  {cell(row[column])}
                </span>
              ))}
            </div>
          ))}
        </Virtualizer>
      </div>
    </div>
  )
}
