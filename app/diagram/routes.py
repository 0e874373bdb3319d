"""Where the links run: through the columns within a band, and through lanes and gutters from band to band."""

from __future__ import annotations

from app.diagram.layout_model import Chain, Placed, Point, State, snapped_up

CROWDED = 0.6  # of the distance between two tracks, where there are many
MOST_TRACKS = 5  # that a gutter is made wider for, where links lead themselves, and that count for the form of a page


def draw(state: State, turned: list[bool]) -> Placed:
    """Return corners, and routes unless links are not routed, from layers, order and y."""
    crossers = _crossers(state) if state.routed else {}
    tops, bottom, tracks = _bands_down(state, crossers)
    lanes = _left_lanes(state, crossers)
    right_lanes = {
        link: lane for links in crossers.values() for lane, link in enumerate(links)
    }
    margin = _lane_x(state, max(lanes.values(), default=-1) + 1) if lanes else 0.0
    left, right, band_of = state.left, state.right, state.band_of_layer
    # A box is centred in its column, or at its left on a grid.
    share = 0.0 if state.spacing.grid else 0.5
    corners = [
        (
            left[n] + margin + share * (right[n] - left[n] - vertex.width),
            tops[band_of[n]] + y,
        )
        for vertex, n, y in zip(state.vertices, state.layer, state.y, strict=False)
    ]
    full = max(state.right) + margin
    if not state.routed:
        return Placed(corners, [], [], full, bottom)
    routes: list[list[Point]] = [[] for _ in state.links]
    labels: list[Point | None] = [None] * len(state.links)
    gaps: dict[tuple[int, int], list[int]] = {}
    for chain in state.chains:
        link = chain.link
        if not state.links[link].label_width and (
            level := _level_link(state, chain, corners)
        ):
            routes[link] = level
            continue
        points = _chain_points(state, chain, corners, tops[chain.band], margin)
        if chain.enters:
            x = margin - _lane_x(state, lanes[link])
            y = tracks[link]
            across = routes[link][-1][0]
            routes[link] += [(across, y), (x, y), (x, points[0][1])]
            if (
                len(crossers[state.band_of_layer[state.layer[state.links[link].tail]]])
                <= state.spacing.crowd
            ):
                labels[link] = ((across + x) / 2, y)
        routes[link] += points
        if chain.leaves:
            routes[link].append(
                (full + _lane_x(state, right_lanes[link]), points[-1][1])
            )
        elif len(chain.items) > 2 and not chain.enters:
            labels[link] = _longest_level(points)
        elif not chain.enters:
            labels[link] = _middle(state, chain, points, margin)
            gaps.setdefault((chain.band, state.layer[chain.items[0]]), []).append(link)
    _spread_labels(state, gaps, labels)
    wide = max((x for route in routes for x, _ in route), default=full)
    routes = [
        simplified(route[::-1] if turn else route)
        for route, turn in zip(routes, turned, strict=True)
    ]
    return Placed(corners, routes, labels, max(full, wide + (margin and 4.0)), bottom)


def _crossers(state: State) -> dict[int, list[int]]:
    """List the links that leave each band, the topmost last: it gets the outer lane and the lowest track."""
    leaving: dict[int, list[tuple[float, int]]] = {}
    for chain in state.chains:
        if chain.leaves:
            last = chain.items[-1]
            down = (
                state.links[chain.link].tail_dy if last < len(state.vertices) else 0.0
            )
            leaving.setdefault(chain.band, []).append(
                (-(state.y[last] + down), chain.link)
            )
    return {
        band: [link for _, link in sorted(crossing)]
        for band, crossing in leaving.items()
    }


def _bands_down(
    state: State, crossers: dict[int, list[int]]
) -> tuple[list[float], float, dict[int, float]]:
    """Return the tops of the bands, the bottom, and the y of each crossing link's track; lines of boxes are aligned to
    the grid."""
    spacing, count = state.spacing, len(state.vertices)
    framed = [any(state.frames[a:b]) for a, b in state.bands]
    through = [0] * len(
        state.bands
    )  # links in the gutter under a band that lead themselves
    for connection in () if state.routed else state.links:
        tail, head = (
            state.band_of_layer[state.layer[end]]
            for end in (connection.tail, connection.head)
        )
        for gutter in {tail, head - 1} if tail < head else ():
            through[gutter] += 1
    tops, tracks, y = [], {}, 0.0
    for band, (a, b) in enumerate(state.bands):
        tops.append(y)
        items = [item for row in state.rows[a:b] for item in row]
        for item in items if spacing.grid else ():
            if item < count:
                line = state.vertices[item].line
                state.y[item] = (
                    snapped_up(y + state.y[item] + line, spacing.grid) - line - y
                )
        lowest = max(state.y[item] + state.heights[item] for item in items)
        if spacing.edge:
            lowest = max(
                [
                    lowest,
                    *(state.y[item] + spacing.edge for item in items if item >= count),
                ]
            )
        y += lowest
        if band + 1 == len(state.bands):
            break
        gap = (
            spacing.fold
            if state.arms
            else spacing.frame
            if framed[band] or framed[band + 1]
            else spacing.band
        )
        if not state.routed:
            gap = max(gap, min(through[band], MOST_TRACKS) * spacing.track)
        crossing = crossers.get(band, [])
        crowded = len(crossing) > spacing.crowd
        labelled = not crowded and any(
            state.links[link].label_width for link in crossing
        )
        step = (
            spacing.label_height + 2
            if labelled
            else spacing.track * (CROWDED if crowded else 1.0)
        )
        y += gap / 2
        for number, link in enumerate(crossing):
            tracks[link] = y + number * step
        y += max(len(crossing) - 1, 0) * step + gap / 2
    return tops, y, tracks


def _left_lanes(state: State, crossers: dict[int, list[int]]) -> dict[int, int]:
    """Lane of each crossing link left of the bands: inner ones for the lower tracks, none used twice at one height."""
    occupied: list[set[int]] = []
    lanes: dict[int, int] = {}
    spans = []
    for band, links in crossers.items():
        for number, link in enumerate(links):
            spans.append(
                (
                    state.band_of_layer[state.layer[state.links[link].head]] - band,
                    band,
                    -number,
                    link,
                )
            )
    for length, band, _, link in sorted(spans):
        passed = range(band + 1, band + length + 1)
        lane = 0
        while lane < len(occupied) and any(
            number in occupied[lane] for number in passed
        ):
            lane += 1
        if lane == len(occupied):
            occupied.append(set())
        occupied[lane].update(passed)
        lanes[link] = lane
    return lanes


def _lane_x(state: State, lane: int) -> float:
    return 14.0 + lane * state.spacing.track


def _chain_points(
    state: State, chain: Chain, corners: list[Point], top: float, margin: float
) -> list[Point]:
    """Straight across every column, so that slanting parts stay between columns."""
    link, count = state.links[chain.link], len(state.vertices)
    points: list[Point] = []
    for position, item in enumerate(chain.items):
        if item >= count:
            layer = _layer_of_bend(state, chain, position)
            y = top + state.y[item]
            points += [
                (state.left[layer] + margin, y),
                (state.right[layer] + margin, y),
            ]
            continue
        x, y = corners[item]
        layer = state.layer[item]
        if position == 0 and not chain.enters:
            y += link.tail_dy
            points += [
                (x + state.vertices[item].width, y),
                (state.right[layer] + margin, y),
            ]
        else:
            y += link.head_dy
            points += [(state.left[layer] + margin, y), (x, y)]
    return points


def _level_link(state: State, chain: Chain, corners: list[Point]) -> list[Point] | None:
    """Return both ends of a level link to the next column; None for any other."""
    if len(chain.items) != 2 or chain.enters or chain.leaves:
        return None
    tail, head = chain.items
    count = len(state.vertices)
    if tail >= count or head >= count or state.layer[head] != state.layer[tail] + 1:
        return None
    link = state.links[chain.link]
    (x, y), (end, other) = corners[tail], corners[head]
    x, y, other = x + state.vertices[tail].width, y + link.tail_dy, other + link.head_dy
    return [(x, y), (end, other)] if abs(y - other) < 0.005 and end - x > 0.02 else None


def _layer_of_bend(state: State, chain: Chain, position: int) -> int:
    """Return the layer of a bend: consecutive from the vertex at one end of its chain."""
    if chain.enters:
        return state.layer[chain.items[-1]] - (len(chain.items) - 1 - position)
    return state.layer[chain.items[0]] + position


def _middle(state: State, chain: Chain, points: list[Point], margin: float) -> Point:
    """Return the point of a link in the centre of the gap right of its tail's column."""
    edge = state.right[state.layer[chain.items[0]]] + margin
    for a, b in zip(points, points[1:], strict=False):
        if b[0] > edge:
            return (max(a[0], edge) + b[0]) / 2, (a[1] + b[1]) / 2
    return points[-1]


def _longest_level(points: list[Point]) -> Point:
    """Return the centre of the longest horizontal segment of a long link."""
    way = simplified(points)
    inner = [
        (a, b) for a, b in zip(way, way[1:], strict=False) if abs(a[1] - b[1]) < 0.01
    ]
    a, b = max(inner, key=lambda pair: abs(pair[1][0] - pair[0][0]))
    return (a[0] + b[0]) / 2, a[1]


def _spread_labels(
    state: State, gaps: dict[tuple[int, int], list[int]], labels: list[Point | None]
) -> None:
    """Separate labels in one gap between two columns."""
    step = state.spacing.label_height
    for links in gaps.values():
        anchors = [
            (y, x, link)
            for link in links
            if state.links[link].label_width
            for x, y in [labels[link] or (0, 0)]
        ]
        anchors.sort()
        for (y_above, x_above, _), (y, x, link) in zip(
            anchors, anchors[1:], strict=False
        ):
            if y - y_above < step and abs(x - x_above) < state.links[link].label_width:
                labels[link] = (x, y_above + step)


def simplified(route: list[Point]) -> list[Point]:
    """Leave out points that are equal to the one before, and those within a level line: one for each border that a
    route crosses, of which there may be hundreds."""
    (x, level), (end, _) = route[0], route[-1]
    if len(route) == 2:
        return route
    if abs(end - x) > 0.02 and all(abs(y - level) < 0.005 for _, y in route):
        return [route[0], route[-1]]
    points: list[Point] = []
    for point in route:
        before = points[-2:]
        if before and max(map(abs, _step(before[-1], point))) < 0.01:
            continue
        if len(before) == 2 and _level(*before) and _level(before[1], point):
            points.pop()
        points.append(point)
    return points


def _step(a: Point, b: Point) -> Point:
    return b[0] - a[0], b[1] - a[1]


def _level(a: Point, b: Point) -> bool:
    return abs(a[1] - b[1]) < 0.01
