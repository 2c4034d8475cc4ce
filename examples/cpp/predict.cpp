// Run an exported surrogate in C++ with ONNX Runtime: the pressure in a square with a disc of
// another permeability.
//
//   cato export darcy --out darcy.onnx
//   c++ -std=c++17 predict.cpp -o predict $(pkg-config --cflags --libs libonnxruntime)
//   ./predict darcy.onnx 29 > pressure.csv
//
// The metadata are printed to standard error, the nodes and the prediction to standard output.
// Values are physical: normalisation is part of the file.

#include <onnxruntime_cxx_api.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <vector>

// Names and sizes of the axes of an input or output: a free size is -1 and has a name.
void print_axes(const char* name, const Ort::TypeInfo& type) {
  const auto tensor = type.GetTensorTypeAndShapeInfo();
  const auto sizes = tensor.GetShape();
  std::vector<const char*> names(sizes.size());
  tensor.GetSymbolicDimensions(names.data(), names.size());
  std::cerr << name << ":";
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] < 0) {
      std::cerr << ' ' << names[axis];
    } else {
      std::cerr << ' ' << sizes[axis];
    }
  }
  std::cerr << '\n';
}

int main(int argc, char** argv) try {
  if (argc != 3 || std::atoi(argv[2]) < 3) {
    std::cerr << "usage: predict MODEL.onnx NODES, for example: predict darcy.onnx 29\n";
    return 2;
  }
  const std::int64_t n = std::atoi(argv[2]);

  const Ort::Env env;
  Ort::Session session(env, argv[1], Ort::SessionOptions());
  Ort::AllocatorWithDefaultOptions allocator;

  // What the file says about itself; the properties cato.* are JSON.
  const auto metadata = session.GetModelMetadata();
  for (const auto& key : metadata.GetCustomMetadataMapKeysAllocated(allocator)) {
    const auto value = metadata.LookupCustomMetadataMapAllocated(key.get(), allocator);
    std::cerr << key.get() << " = " << value.get() << '\n';
  }
  for (std::size_t i = 0; i < session.GetInputCount(); ++i) {
    print_axes(session.GetInputNameAllocated(i, allocator).get(), session.GetInputTypeInfo(i));
  }
  print_axes("outputs", session.GetOutputTypeInfo(0));

  // One sample on n x n nodes of the unit square, channels last: positions and permeability.
  std::vector<float> coords, permeability;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = static_cast<float>(i) / (n - 1), y = static_cast<float>(j) / (n - 1);
      coords.insert(coords.end(), {x, y});
      permeability.push_back(std::hypot(x - 0.5f, y - 0.5f) > 0.4f ? 12.f : 3.f);
    }
  }
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const auto tensor = [&](std::vector<float>& values, std::int64_t channels) {
    const std::array<std::int64_t, 4> shape{1, n, n, channels};
    return Ort::Value::CreateTensor<float>(memory, values.data(), values.size(), shape.data(), 4);
  };
  const std::array<const char*, 2> inputs{"coords", "inputs"};
  const std::array<Ort::Value, 2> values{tensor(coords, 2), tensor(permeability, 1)};
  const std::array<const char*, 1> outputs{"outputs"};
  const auto solved =
      session.Run(Ort::RunOptions(), inputs.data(), values.data(), 2, outputs.data(), 1);

  const float* pressure = solved.front().GetTensorData<float>();
  std::cout.precision(std::numeric_limits<float>::max_digits10);
  std::cout << "x,y,u\n";
  for (std::int64_t node = 0; node < n * n; ++node) {
    std::cout << coords[2 * node] << ',' << coords[2 * node + 1] << ',' << pressure[node] << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
