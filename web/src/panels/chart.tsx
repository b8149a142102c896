/** A table drawn by ECharts, as SVG; loaded when a chart is asked for. */
import { BarChart, LineChart, PieChart, ScatterChart } from 'echarts/charts'
import { AriaComponent, GridComponent, LegendComponent, TitleComponent, TooltipComponent } from 'echarts/components'
import { init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'
import { useEffect, useMemo, useRef, useState } from 'react'
import { useText } from '../i18n'
import type { RowsView } from '../types'
import { Button } from '../ui/basics'

use([BarChart, LineChart, PieChart, ScatterChart, GridComponent, TooltipComponent, LegendComponent, TitleComponent, AriaComponent, SVGRenderer])

const KINDS = ['bar', 'line'] as const
const MOST_BARS = 60

/** Sums of a numeric column by the values of another, in the order they come. */
function sums(view: RowsView, by: string, of: string): [string, number][] {
  const found = new Map<string, number>()
  for (const row of view.rows) {
    const name = String(row[by] ?? '')
    found.set(name, (found.get(name) ?? 0) + Number(row[of] ?? 0))
  }
  return [...found].slice(0, MOST_BARS)
}

export default function Chart({ view, name }: { view: RowsView; name: string }) {
  const t = useText()
  const box = useRef<HTMLDivElement>(null)
  const numeric = useMemo(() => {
    const number = (value: unknown) => typeof value === 'number' || (typeof value === 'string' && value.trim() !== '' && Number.isFinite(Number(value)))
    return view.columns.filter((column) => view.rows.length > 0 && view.rows.every((row) => row[column] === null || number(row[column])))
  }, [view])
  const [by, setBy] = useState(() => view.columns.find((column) => !numeric.includes(column)) ?? view.columns[0] ?? '')
  const [of, setOf] = useState(numeric[numeric.length - 1] ?? '')
  const [kind, setKind] = useState<(typeof KINDS)[number]>('bar')

  const label = t.chartOf(of, by)
  useEffect(() => {
    if (!box.current || !of) return
    const ink = getComputedStyle(document.documentElement).getPropertyValue('--ink')
    const chart = init(box.current, null, { renderer: 'svg' })
    const data = sums(view, by, of)
    chart.setOption({
      animation: false,
      aria: { enabled: true, label: { description: `${label}: ${data.slice(0, 10).map(([one, value]) => `${one} ${value}`).join(', ')}` } },
      textStyle: { color: ink },
      tooltip: { trigger: 'axis' },
      grid: { left: 8, right: 8, top: 24, bottom: 8, containLabel: true },
      xAxis: { type: 'category', data: data.map(([one]) => one), axisLabel: { color: ink } },
      yAxis: { type: 'value', name: of, nameTextStyle: { color: ink }, axisLabel: { color: ink } },
      series: [{ type: kind, name: of, data: data.map(([, value]) => value), itemStyle: { color: '#2f7fa8' } }],
    })
    const watcher = new ResizeObserver(() => chart.resize())
    watcher.observe(box.current)
    return () => {
      watcher.disconnect()
      chart.dispose()
    }
  }, [view, by, of, kind, label])

  const save = () => {
    const svg = box.current?.querySelector('svg')
    if (!svg) return
    const link = document.createElement('a')
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], { type: 'image/svg+xml' }))
    link.download = name.replace(/\.\w+$/, '') + '.svg'
    link.click()
    URL.revokeObjectURL(link.href)
  }

  if (!of) return <p className="p-2 text-sm text-soft">{t.nothingToDraw}</p>
  const choice = (label: string, value: string, options: readonly string[], set: (value: string) => void) => (
    <label className="flex items-center gap-1">
      {label}
      <select className="field !w-auto" value={value} onChange={(event) => set(event.target.value)}>
        {options.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    </label>
  )
  return (
    <div className="space-y-2 text-xs">
      <div className="flex flex-wrap gap-2">
        {choice(t.sumOf, of, numeric, setOf)}
        {choice(t.by, by, view.columns, setBy)}
        {choice(t.chartKind, kind, KINDS, (value) => setKind(value as (typeof KINDS)[number]))}
        <Button onClick={save}>SVG</Button>
      </div>
      {view.rows.length < view.total && <p className="text-warn">{t.partOnly(view.rows.length, view.total)}</p>}
      <div ref={box} className="h-72 w-full" role="img" aria-label={label} data-testid="chart" />
    </div>
  )
}
